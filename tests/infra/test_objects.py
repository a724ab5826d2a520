import io
import urllib.error
import urllib.request
from pathlib import Path
from threading import Thread
from urllib.parse import quote, urlsplit

import pytest

from speechmill.infra import objects
from speechmill.infra.embedded import EmbeddedS3
from speechmill.infra.errors import ObjectExists, StoreUnavailable
from speechmill.infra.objects import Found, ObjectMissing, ObjectStore, Stored

TEXT = "text/plain"
SHA_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def store_of(s3: EmbeddedS3, bucket: str, **more: str) -> ObjectStore:
    return ObjectStore(bucket, s3.endpoint_url, s3.access_key, s3.secret_key, **more)


@pytest.fixture
def store(s3: EmbeddedS3, bucket: str) -> ObjectStore:
    return store_of(s3, bucket)


def everything(store: ObjectStore, key: str, start: int = 0) -> bytes:
    return b"".join(store.get(key, start))


@pytest.mark.parametrize("body", [b"abc", io.BytesIO(b"abc")])
def test_a_stored_object_reads_back(store: ObjectStore, body: io.BytesIO | bytes) -> None:
    assert store.put_once("a/b c+ü.wav", body, TEXT, {"job": "job_1"}) == Stored("a/b c+ü.wav", 3, SHA_OF_ABC)
    assert everything(store, "a/b c+ü.wav") == b"abc"


def test_the_same_content_may_be_stored_again(store: ObjectStore) -> None:
    first = store.put_once("key", b"abc", TEXT)
    assert store.put_once("key", io.BytesIO(b"abc"), TEXT) == first


def test_other_content_is_never_stored_over(store: ObjectStore) -> None:
    store.put_once("key", b"abc", TEXT)
    with pytest.raises(ObjectExists, match="key"):
        store.put_once("key", b"abd", TEXT)
    assert everything(store, "key") == b"abc"


def test_of_writers_that_race_one_wins(store: ObjectStore) -> None:
    refused: list[int] = []

    def put(number: int) -> None:
        try:
            store.put_once("key", bytes([number]) * 1000, TEXT)
        except ObjectExists:
            refused.append(number)

    threads = [Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 7
    assert everything(store, "key")[0] not in refused


def test_a_long_body_goes_up_in_parts_and_once(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(objects, "MULTIPART_BYTES", 20 << 20)
    body = bytes(range(256)) * (21 << 12)
    path = tmp_path / "long"
    path.write_bytes(body)
    with path.open("rb") as file:
        stored = store.put_once("long", file, TEXT)
        assert store.put_once("long", file, TEXT) == stored
    assert stored.size_bytes == len(body)
    with pytest.raises(ObjectExists):
        store.put_once("long", body + b"!", TEXT)
    assert everything(store, "long") == body
    assert "Uploads" not in store._client.list_multipart_uploads(Bucket=store.bucket)


def test_reading_may_start_anywhere(store: ObjectStore) -> None:
    store.put_once("key", b"abcdef", TEXT)
    assert [everything(store, "key", start) for start in (0, 4, 6, 9)] == [b"abcdef", b"ef", b"", b""]
    assert store.read_range("key", 1, 4) == b"bcd"
    assert store.read_range("key", 4, 99) == b"ef"
    assert store.read_range("key", 6, 8) == b""
    assert store.read_range("key", 3, 3) == b""


def test_an_empty_object_is_an_object(store: ObjectStore) -> None:
    store.put_once("key", b"", TEXT)
    assert everything(store, "key") == b""


def test_a_missing_object_is_reported_before_reading(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissing, match="nothing"):
        store.get("nothing")
    with pytest.raises(ObjectMissing):
        store.read_range("nothing", 0, 5)


def test_a_reader_may_stop_early(store: ObjectStore) -> None:
    store.put_once("key", bytes(1 << 20), TEXT)
    for _ in range(40):  # More than the pool has connections.
        reader = store.get("key")
        next(reader)
        del reader


def test_deleting_takes_many_keys_and_forgives_missing(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_MOST_KEYS", 2)
    for key in ("a", "b", "c"):
        store.put_once(key, b"abc", TEXT)
    store.delete_many(["a", "b", "missing", "other"])
    store.delete_many([])
    assert [found.key for found in store.list_prefix("")] == ["c"]


def test_a_prefix_lists_what_stands_under_it(store: ObjectStore) -> None:
    for key in ("a/1", "a/2", "b/1"):
        store.put_once(key, b"abc", TEXT)
    found = list(store.list_prefix("a/"))
    assert [(one.key, one.size_bytes) for one in found] == [("a/1", 3), ("a/2", 3)]
    assert all(isinstance(one, Found) and one.modified_s > 1.6e9 for one in found)
    assert list(store.list_prefix("c/")) == []


@pytest.mark.parametrize("filename", ["speech.wav", 'naïve "name".wav'])
def test_a_presigned_url_gives_the_object_to_anybody(store: ObjectStore, filename: str) -> None:
    store.put_once("a/key", b"abc", TEXT)
    url = store.presign("a/key", 60, filename, "audio/wav")
    with urllib.request.urlopen(url) as response:
        assert response.read() == b"abc"
        assert response.headers["Content-Type"] == "audio/wav"
        disposition = response.headers["Content-Disposition"]
    assert disposition in (f'attachment; filename="{filename}"', f"attachment; filename*=UTF-8''{quote(filename)}")


def test_a_presigned_url_is_of_no_use_for_anything_else(store: ObjectStore) -> None:
    store.put_once("key", b"abc", TEXT)
    store.put_once("kez", b"abc", TEXT)
    url = store.presign("key", 60, "speech.wav", "audio/wav")
    with pytest.raises(urllib.error.HTTPError, match="403") as refused:
        urllib.request.urlopen(url.replace("/key?", "/kez?"))
    refused.value.close()


def test_presigned_urls_point_to_the_public_endpoint(s3: EmbeddedS3, bucket: str) -> None:
    public = store_of(s3, bucket, public_endpoint_url="https://audio.example.com")
    url = urlsplit(public.presign("key", 60, "speech.wav", "audio/wav"))
    assert (url.scheme, url.netloc, url.path) == ("https", "audio.example.com", f"/{bucket}/key")


def test_a_store_on_this_machine_is_not_asked_through_a_proxy(
    s3: EmbeddedS3, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert store_of(s3, bucket).ready()


def test_a_store_with_the_wrong_secret_is_not_ready(s3: EmbeddedS3, bucket: str) -> None:
    store = ObjectStore(bucket, s3.endpoint_url, s3.access_key, "wrong")
    assert not store.ready()
    with pytest.raises(StoreUnavailable, match="refuses key"):
        store.put_once("key", b"abc", TEXT)


def test_a_store_without_its_bucket_is_not_ready(s3: EmbeddedS3) -> None:
    store = store_of(s3, "no-such-bucket")
    assert not store.ready()
    with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
        store.get("key")


def test_a_secret_is_not_printed(store: ObjectStore) -> None:
    assert store.secret_key
    assert store.secret_key not in repr(store)


def test_a_killed_store_is_unavailable_until_it_is_back(tmp_path: Path) -> None:
    server = EmbeddedS3(tmp_path)
    server.start()
    try:
        store = store_of(server, server.bucket)
        store.put_once("key", bytes(8 << 20), TEXT)
        reader = store.get("key")
        next(reader)
        assert server.process
        server.process.kill()
        server.process.wait()
        with pytest.raises(StoreUnavailable):
            sum(map(len, reader))
        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.put_once("other", b"abc", TEXT)
        assert not store.ready()
        server.start()
        assert store.ready()
        assert len(everything(store, "key")) == 8 << 20
        store.put_once("other", b"abc", TEXT)
    finally:
        server.stop()
