#!/usr/bin/env python3
"""Measures three trivium nodes beside three rabbitmq-server nodes with quorum queues.

All six run on this machine, with their data on the same disk. Each row runs ours and
the peer alternately (A B A B ...), at the node that leads the queue or at another one.
Prints a markdown table of medians.

Usage: cluster.py BIN [--runs N] [--seconds S]
Needs the package rabbitmq-server.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

from peers import HOST, Process, bench, median

EPMD = "24369"


def ours(bin_, base, i):
    dir_ = os.path.join(base, "trivium-%d" % i)
    os.makedirs(dir_, exist_ok=True)
    ports = {"amqp": 31670 + i, "mqtt": 31880 + i, "kafka": 31090 + i, "http": 31080 + i}
    argv = [bin_, "serve", "--node-id", str(i), "--data", dir_, "--cluster", "%s:%d" % (HOST, 31420 + i), "--log-level", "warn"]
    if i > 1:
        argv += ["--join", "%s:31421" % HOST]
    for name, port in ports.items():
        argv += ["--" + name, "%s:%d" % (HOST, port)]
    return Process("trivium", argv, ports, dir_)


def status(broker):
    with urllib.request.urlopen("http://%s:%d/metrics" % (HOST, broker.ports["http"]), timeout=5) as r:
        text = r.read().decode()
    figures = {}
    for line in text.splitlines():
        if line.startswith("trivium_cluster_serving ") or line.startswith("trivium_raft_voters"):
            figures[line.split()[0]] = float(line.split()[1])
    return figures


def serving(brokers):
    deadline = time.time() + 30
    while time.time() < deadline:
        for b in brokers:
            try:
                f = status(b)
            except OSError:
                continue
            if f.get("trivium_cluster_serving") == 1 and all(v == 3 for k, v in f.items() if "voters" in k):
                return b
        time.sleep(0.1)
    sys.exit("no node of ours serves with three voters")


def rabbit_env(base, i):
    dir_ = os.path.join(base, "rabbitmq-%d" % i)
    os.makedirs(dir_, exist_ok=True)
    conf = os.path.join(dir_, "rabbitmq")
    with open(conf + ".conf", "w") as f:
        f.write("listeners.tcp.default = %s:%d\n" % (HOST, 32670 + i))
    with open(os.path.join(dir_, "enabled"), "w") as f:
        f.write("[].")
    return dir_, dict(os.environ, HOME=base, RABBITMQ_NODENAME="cluster%d@localhost" % i, RABBITMQ_CONFIG_FILE=conf,
                      RABBITMQ_MNESIA_BASE=os.path.join(dir_, "mnesia"), RABBITMQ_LOG_BASE=os.path.join(dir_, "log"),
                      RABBITMQ_ENABLED_PLUGINS_FILE=os.path.join(dir_, "enabled"), ERL_EPMD_ADDRESS=HOST, ERL_EPMD_PORT=EPMD, ERL_CRASH_DUMP="/dev/null",
                      RABBITMQ_DIST_PORT=str(32800 + i))


def rabbits(base):
    brokers, envs = [], []
    cookie = os.path.join(base, ".erlang.cookie")
    with open(cookie, "w") as f:
        f.write("trivium")
    os.chmod(cookie, 0o400)
    for i in (1, 2, 3):
        dir_, env = rabbit_env(base, i)
        b = Process("rabbitmq", ["/usr/lib/rabbitmq/bin/rabbitmq-server"], {"amqp": 32670 + i}, dir_, env, "beam.smp")
        b.await_ready(dir_)
        brokers.append(b)
        envs.append(env)
    for env in envs[1:]:
        for args in (["await_startup"], ["stop_app"], ["join_cluster", "cluster1@localhost"], ["start_app"]):
            done = subprocess.run(["/usr/lib/rabbitmq/bin/rabbitmqctl"] + args, env=env, capture_output=True, text=True)
            if done.returncode:
                sys.exit("rabbitmqctl %s: %s" % (args[0], done.stdout + done.stderr))
    return brokers


ROWS = [
    ("AMQP confirm 100 B, a write per publish", ["--batch", "1"], False),
    ("AMQP confirm 100 B, batched writes", [], False),
    ("AMQP confirm 1 KiB, batched writes", ["--size", "1024"], False),
    ("AMQP confirm 100 B at 2,000 msg/s", ["--rate", "2000"], False),
    ("AMQP confirm 100 B through another node, batched writes", [], True),
]


def measure(o, our, peer):
    print("| scenario (%d outstanding) | trivium, 3 nodes | rabbitmq, 3 nodes, quorum queue | ratio | p50 ms ours / peer | p99 ms ours / peer |" % o.outstanding)
    print("|---|---|---|---|---|---|")
    for title, args, elsewhere in ROWS:
        args = args + ["--outstanding", str(o.outstanding)]
        a, b = [], []
        for _ in range(o.runs):
            lead = serving(our)
            at = next(n for n in our if n is not lead) if elsewhere else lead
            a.append(bench(o.bin, at, "amqp-confirm", args, o.seconds))
            b.append(bench(o.bin, peer[1] if elsewhere else peer[0], "amqp-confirm", args, o.seconds))
        ra, rb = median(a, "messages_per_second"), median(b, "messages_per_second")
        print("| %s | %s/s | %s/s | %.2f | %.2f / %.2f | %.2f / %.2f |" % (
            title, "{:,.0f}".format(ra), "{:,.0f}".format(rb), ra / rb,
            median(a, "latency_p50_ms"), median(b, "latency_p50_ms"), median(a, "latency_p99_ms"), median(b, "latency_p99_ms")), flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("bin")
    ap.add_argument("--runs", type=int, default=3)
    ap.add_argument("--seconds", type=float, default=5)
    ap.add_argument("--outstanding", type=int, default=1000)
    o = ap.parse_args()
    base = tempfile.mkdtemp(prefix="trivium-cluster-")
    our, peer = [], []
    try:
        for i in (1, 2, 3):
            our.append(ours(o.bin, base, i))
            our[-1].await_ready(os.path.join(base, "trivium-%d" % i))
        peer = rabbits(base)
        measure(o, our, peer)
    finally:
        for b in our + peer:
            b.stop()
        shutil.rmtree(base, ignore_errors=True)


main()
