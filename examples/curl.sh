#!/bin/sh
# Speech with nothing but curl: a whole file, raw audio while it is made, and server-sent events.
#   examples/curl.sh [--url http://127.0.0.1:8091] [--key KEY]
set -eu

url=http://127.0.0.1:8091
key=none
while [ $# -gt 0 ]; do
    case $1 in
        --url) url=$2 ;;
        --key) key=$2 ;;
        *) echo "usage: $0 [--url URL] [--key KEY]" >&2 && exit 2 ;;
    esac
    shift 2
done

# --fail-with-body: what the server says about a refused request is printed, and the exit code is not 0.
speak() {
    curl --silent --show-error --fail-with-body "$url/v1/audio/speech" \
        -H "Authorization: Bearer $key" -H 'Content-Type: application/json' "$@"
}

# A complete file. The same seed gives the same audio; X-Seed tells the one that was drawn if none is given.
speak -d '{"input": "This is a whole file.", "response_format": "mp3", "seed": 7}' -o whole.mp3
echo "whole.mp3: $(wc -c <whole.mp3) bytes"

# Raw 16-bit PCM as it is made (-N: curl must not wait). To hear it at once, put in place of -o:
#   | play -t raw -r 24000 -e signed -b 16 -c 1 -
speak -N -d '{"input": "This arrives while it is spoken.", "response_format": "pcm", "stream_format": "audio"}' \
    -D headers.txt -o stream.pcm
echo "stream.pcm: $(wc -c <stream.pcm) bytes at $(tr -d '\r' <headers.txt | sed -n 's/^x-sample-rate: //p') Hz"

# The same as events: speech.audio.delta with base64 audio, and speech.audio.done at the end.
speak -N -d '{"input": "And these are events.", "response_format": "opus", "stream": true}' -o events.txt
echo "events.txt: $(grep -c '^event: speech.audio.delta' events.txt) pieces, then $(grep -o '"duration_ms":[0-9]*' events.txt)"
