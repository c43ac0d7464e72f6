#!/bin/sh
# Installs what the tests need beyond Go: Debian's clients and, through npm,
# the JavaScript ones. Does nothing where they are there already. Where it
# cannot install, the tests that need the client say "skipped" (in CI they fail).
set -u
cd "$(dirname "$0")"

missing=""
want() { # want PACKAGE TEST-COMMAND...
	pkg=$1
	shift
	"$@" >/dev/null 2>&1 || missing="$missing $pkg"
}
want kcat command -v kcat
want mosquitto-clients command -v mosquitto_pub
want python3-pika /usr/bin/python3 -c 'import pika'
want python3-celery /usr/bin/python3 -c 'import celery'
want python3-confluent-kafka /usr/bin/python3 -c 'import confluent_kafka'
want python3-paho-mqtt /usr/bin/python3 -c 'import paho.mqtt.client'
command -v node >/dev/null 2>&1 || missing="$missing nodejs npm"

if [ -n "$missing" ]; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null ||
			echo "clients: could not install$missing" >&2
	else
		echo "clients: not root or no apt-get; missing$missing" >&2
	fi
fi

if command -v npm >/dev/null 2>&1; then
	[ -d node_modules/mqtt ] && [ -d node_modules/amqplib ] && [ -d node_modules/kafkajs ] ||
		npm install --silent --no-audit --no-fund || echo "clients: npm install failed" >&2
fi
exit 0
