#!/bin/sh
# Runs every bench scenario once against a broker of our own in a temporary
# directory. Usage: own.sh BIN [bench flags]
set -eu
bin=$1
shift
dir=$(mktemp -d)
"$bin" serve --data "$dir" --cluster off --log-level warn \
	--amqp 127.0.0.1:31672 --mqtt 127.0.0.1:31883 --kafka 127.0.0.1:31092 --http 127.0.0.1:31080 &
pid=$!
trap 'kill $pid; wait $pid 2>/dev/null || true; rm -rf "$dir"' EXIT
until curl -sf http://127.0.0.1:31080/health/ready >/dev/null 2>&1; do kill -0 $pid; sleep 0.1; done
"$bin" bench amqp-confirm --target 127.0.0.1:31672 --pid $pid "$@"
"$bin" bench mqtt-qos1 --target 127.0.0.1:31883 --pid $pid "$@"
"$bin" bench kafka-produce --target 127.0.0.1:31092 --pid $pid "$@"
"$bin" bench kafka-consume --target 127.0.0.1:31092 --pid $pid "$@"
"$bin" bench mixed --target 127.0.0.1:31672 --mqtt-target 127.0.0.1:31883 --pid $pid "$@"
