#!/bin/sh
# Speech with nothing but curl: a whole file, raw audio while it is made, and server-sent events.
#   examples/curl.sh [--url http://127.0.0.1:8091] [--key KEY] [--model MODEL]
set -eu

url=http://127.0.0.1:8091
key=none
model=
while [ $# -gt 0 ]; do
    case $1 in
        --url) url=$2 ;;
        --key) key=$2 ;;
        --model) model=", \"model\": \"$2\"" ;; # a farm that serves several wants to be told which
        *) echo "usage: $0 [--url URL] [--key KEY] [--model MODEL]" >&2 && exit 2 ;;
    esac
    shift 2
done

# speak FILE JSON-FIELDS …. What the server says about a refused request would lie in the file, for curl writes it there:
# --fail-with-body makes the exit code tell it from audio.
speak() {
    file=$1 fields=$2
    shift 2
    curl --silent --show-error --fail-with-body "$url/v1/audio/speech" \
        -H "Authorization: Bearer $key" -H 'Content-Type: application/json' -d "{$fields$model}" -o "$file" "$@" && return
    [ -f "$file" ] && cat "$file" >&2 && rm "$file"
    exit 1
}

# A complete file. The same seed gives the same audio; X-Seed tells the one that was drawn if none is given.
speak whole.mp3 '"input": "This is a whole file.", "response_format": "mp3", "seed": 7'
echo "whole.mp3: $(wc -c <whole.mp3) bytes"

# Raw 16-bit PCM as it is made (-N: curl must not wait). To hear it at once, put - in place of stream.pcm, and behind it:
#   | play -t raw -r 24000 -e signed -b 16 -c 1 -
speak stream.pcm '"input": "This arrives while it is spoken.", "response_format": "pcm", "stream_format": "audio"' \
    -N -D headers.txt
echo "stream.pcm: $(wc -c <stream.pcm) bytes at $(tr -d '\r' <headers.txt | sed -n 's/^x-sample-rate: //p') Hz"

# The same as events: speech.audio.delta with base64 audio, and speech.audio.done at the end.
speak events.txt '"input": "And these are events.", "response_format": "opus", "stream": true' -N
echo "events.txt: $(grep -c '^event: speech.audio.delta' events.txt) pieces, then $(grep -o '"duration_ms":[0-9]*' events.txt)"
