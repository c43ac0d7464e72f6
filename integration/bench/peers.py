#!/usr/bin/env python3
"""Measures trivium beside Debian's rabbitmq-server and mosquitto in one run.

Each row runs ours and the peer alternately (A B A B ...) with the same client,
the same number of unconfirmed messages, durable queues and persistent messages,
every broker with its own data directory on the same disk. Prints a markdown
table of medians. Syncs are counted with strace in a separate short run for both.

Usage: peers.py BIN [--runs N] [--seconds S] [--only TEXT]
Needs root for strace, and the packages rabbitmq-server, mosquitto and strace.
"""
import argparse
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HOST = "127.0.0.1"


class Process:
    """One broker under test."""

    def __init__(self, name, argv, ports, dir_, env=None, pattern=None):
        self.name, self.ports = name, ports
        with open(os.path.join(dir_, "output"), "w") as out:
            self.proc = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                         start_new_session=True)
        self.pattern = pattern

    def pid(self):
        if not self.pattern:
            return self.proc.pid
        out = subprocess.run(["pgrep", "-g", str(self.proc.pid), "-f", self.pattern], capture_output=True, text=True).stdout.split()
        return int(out[0])

    def await_ready(self, dir_):
        deadline = time.time() + 60
        while time.time() < deadline:
            if all(port_open(p) for p in self.ports.values()):
                return
            time.sleep(0.1)
        with open(os.path.join(dir_, "output")) as f:
            sys.exit("%s did not start:\n%s" % (self.name, f.read()[-2000:]))

    def stop(self):
        os.killpg(self.proc.pid, signal.SIGTERM)
        try:
            self.proc.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.proc.pid, signal.SIGKILL)


def port_open(port):
    with socket.socket() as s:
        s.settimeout(0.2)
        return s.connect_ex((HOST, port)) == 0


def ours(bin_, dir_):
    ports = {"amqp": 31672, "mqtt": 31883, "kafka": 31092, "http": 31080}
    argv = [bin_, "serve", "--data", dir_, "--cluster", "off", "--log-level", "warn"]
    for name, port in ports.items():
        argv += ["--" + name, "%s:%d" % (HOST, port)]
    return Process("trivium", argv, ports, dir_)


def rabbitmq(dir_):
    ports = {"amqp": 32672, "mqtt": 32883}
    conf = os.path.join(dir_, "rabbitmq")
    with open(conf + ".conf", "w") as f:
        f.write("listeners.tcp.default = %s:%d\nmqtt.listeners.tcp.default = %s:%d\n" % (HOST, ports["amqp"], HOST, ports["mqtt"]))
    with open(os.path.join(dir_, "enabled"), "w") as f:
        f.write("[rabbitmq_mqtt].")
    env = dict(os.environ, HOME=dir_, RABBITMQ_NODENAME="peers@localhost", RABBITMQ_CONFIG_FILE=conf,
               RABBITMQ_MNESIA_BASE=os.path.join(dir_, "mnesia"), RABBITMQ_LOG_BASE=os.path.join(dir_, "log"),
               RABBITMQ_ENABLED_PLUGINS_FILE=os.path.join(dir_, "enabled"), ERL_EPMD_ADDRESS=HOST)
    return Process("rabbitmq", ["/usr/lib/rabbitmq/bin/rabbitmq-server"], ports, dir_, env, "beam.smp")


def mosquitto(dir_):
    ports = {"mqtt": 33883}
    conf = os.path.join(dir_, "mosquitto.conf")
    with open(conf, "w") as f:
        f.write("listener %d %s\nallow_anonymous true\npersistence true\npersistence_location %s/\n"
                "max_inflight_messages 0\nmax_queued_messages 0\nuser root\n" % (ports["mqtt"], HOST, dir_))
    return Process("mosquitto", ["mosquitto", "-c", conf], ports, dir_)


def rows(outstanding):
    """(title, scenario, peer, extra arguments, which figure is compared)"""
    flush = ["--batch", "1"]
    return [
        ("AMQP confirm 100 B, a write per publish", "amqp-confirm", "rabbitmq", flush, "rate"),
        ("AMQP confirm 100 B, batched writes", "amqp-confirm", "rabbitmq", [], "rate"),
        ("AMQP confirm 1 KiB, a write per publish", "amqp-confirm", "rabbitmq", ["--size", "1024"] + flush, "rate"),
        ("AMQP confirm 1 KiB, batched writes", "amqp-confirm", "rabbitmq", ["--size", "1024"], "rate"),
        ("AMQP confirm 100 B at 2,000 msg/s", "amqp-confirm", "rabbitmq", ["--rate", "2000"], "p99"),
        ("MQTT QoS 1 100 B, a write per publish", "mqtt-qos1", "mosquitto", flush, "rate"),
        ("MQTT QoS 1 100 B, batched writes", "mqtt-qos1", "mosquitto", [], "rate"),
        ("MQTT QoS 1 in, AMQP out, a write per publish", "mixed", "rabbitmq", flush, "rate"),
        ("MQTT QoS 1 in, AMQP out, batched writes", "mixed", "rabbitmq", [], "rate"),
    ]


def bench(bin_, broker, scenario, args, seconds):
    proto = "mqtt" if scenario.startswith("mqtt") else "amqp"
    argv = [bin_, "bench", scenario, "--json", "--duration", "%gs" % seconds, "--pid", str(broker.pid()),
            "--target", "%s:%d" % (HOST, broker.ports[proto])]
    if scenario == "mixed":
        argv += ["--mqtt-target", "%s:%d" % (HOST, broker.ports["mqtt"])]
    if broker.name == "rabbitmq" and proto == "mqtt":
        argv += ["--user", "guest", "--password", "guest"]
    out = subprocess.run(argv + args, capture_output=True, text=True)
    if out.returncode:
        sys.exit("%s: %s" % (" ".join(argv + args), out.stderr))
    return json.loads(out.stdout)


def syncs_per_message(bin_, broker, scenario, args):
    if not shutil.which("strace"):
        return None
    with tempfile.NamedTemporaryFile("r") as f:
        tracer = subprocess.Popen(["strace", "-f", "-c", "-e", "trace=fsync,fdatasync,msync,sync_file_range", "-o", f.name,
                                   "-p", str(broker.pid())], stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        res = bench(bin_, broker, scenario, args, 2)
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        calls = sum(int(line.split()[3]) for line in f if re.search(r"\b(fsync|fdatasync|msync|sync_file_range)\b", line))
    return calls, calls / max(res["published"], 1)


def median(results, key):
    return statistics.median(r.get(key, 0) for r in results)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("bin")
    ap.add_argument("--runs", type=int, default=3)
    ap.add_argument("--seconds", type=float, default=5)
    ap.add_argument("--outstanding", type=int, default=1000)
    ap.add_argument("--only", default="")
    o = ap.parse_args()
    base = tempfile.mkdtemp(prefix="trivium-peers-")
    dirs = {n: os.path.join(base, n) for n in ("trivium", "rabbitmq", "mosquitto")}
    for d in dirs.values():
        os.mkdir(d)
    brokers = {}
    try:
        brokers["trivium"] = ours(o.bin, dirs["trivium"])
        brokers["rabbitmq"] = rabbitmq(dirs["rabbitmq"])
        brokers["mosquitto"] = mosquitto(dirs["mosquitto"])
        for b in brokers.values():
            b.await_ready(dirs[b.name])
        print("| scenario (%d outstanding) | trivium | peer | ratio | CPU us/msg ours / peer | p50 ms ours / peer | p99 ms ours / peer | syncs/msg ours / peer | lost, duplicates |" % o.outstanding)
        print("|---|---|---|---|---|---|---|---|---|")
        for title, scenario, peer, args, _ in rows(o.outstanding):
            if o.only.lower() not in title.lower():
                continue
            args = args + ["--outstanding", str(o.outstanding)]
            a, b = [], []
            for _ in range(o.runs):
                a.append(bench(o.bin, brokers["trivium"], scenario, args, o.seconds))
                b.append(bench(o.bin, brokers[peer], scenario, args, o.seconds))
            sa = syncs_per_message(o.bin, brokers["trivium"], scenario, args)
            sb = syncs_per_message(o.bin, brokers[peer], scenario, args)
            ra, rb = median(a, "messages_per_second"), median(b, "messages_per_second")
            bad = "%d, %d / %d, %d" % (sum(r["lost"] for r in a), sum(r["duplicates"] for r in a),
                                       sum(r["lost"] for r in b), sum(r["duplicates"] for r in b))
            print("| %s | %s/s | %s %s/s | %.2f | %.1f / %.1f | %.2f / %.2f | %.2f / %.2f | %s / %s | %s |" % (
                title, "{:,.0f}".format(ra), peer, "{:,.0f}".format(rb), ra / rb,
                median(a, "broker_cpu_us_per_message"), median(b, "broker_cpu_us_per_message"),
                median(a, "latency_p50_ms"), median(b, "latency_p50_ms"),
                median(a, "latency_p99_ms"), median(b, "latency_p99_ms"),
                "%.4f" % sa[1] if sa else "?", "%.4f" % sb[1] if sb else "?", bad), flush=True)
    finally:
        for b in brokers.values():
            b.stop()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
