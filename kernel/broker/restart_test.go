package broker

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestRestart checks that what is durable outlives the process, and nothing
// else does.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	offset, producer := fillNode(t, b)
	shut(t, b)
	b = open(t, dir)
	checkNode(t, b, offset, producer)
}

// fillNode makes something of everything.
func fillNode(t *testing.T, b *Broker) (OffsetCommit, int64) {
	t.Helper()
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true, Type: kernel.Quorum, Arguments: []kernel.Argument{{Name: "x-retention", Value: "1h"}}})
	declare(t, c, QueueSpec{Name: "volatile"})
	declare(t, c, QueueSpec{Name: "$share/audit/q", Durable: true})
	for _, x := range []kernel.Exchange{
		{Name: "x", Type: kernel.Topics, Durable: true, AutoDelete: true},
		{Name: "gone", Type: kernel.Direct},
	} {
		if err := c.DeclareExchange(soon(t), x); err != nil {
			t.Fatal(err)
		}
	}
	bind(t, c, "x", "q", "a.#")
	bind(t, c, "gone", "q", "k")
	if err := c.Bind(soon(t), kernel.Binding{Exchange: "amq.direct", Queue: "q", Key: "k", Arguments: []kernel.Argument{{Name: "n", Value: int64(1)}}}); err != nil {
		t.Fatal(err)
	}
	p := publisher(t, c)
	p.exchange("x", "a.b", "1")
	p.exchange("amq.direct", "k", "2")
	p.exchange("", "waiting", "w")
	m, in := consume(t, c, "q", kernel.MemberOptions{}, 1)
	in.wait(t, 1)
	m.Settle(kernel.Accept, 0, 0, 0)
	kt, err := c.CreateTopic(soon(t), TopicSpec{Name: "log", Partitions: 2, Retention: kernel.RetainWeek})
	if err != nil {
		t.Fatal(err)
	}
	offset := OffsetCommit{Topic: kt.ID, Partition: 1, Offset: 42, LeaderEpoch: 3, Metadata: "m"}
	if err := c.CommitOffsets(soon(t), "readers", []OffsetCommit{offset}); err != nil {
		t.Fatal(err)
	}
	producer, err := c.NewProducerID(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := attach(t, c, "client", true, time.Hour)
	subscribe(t, s, "s/+", 1)
	subscribe(t, s, "live", 0)
	subscribe(t, s, "$share/g/s/#", 1)
	tmp, _ := attach(t, connect(t, b), "temporary", true, 0)
	subscribe(t, tmp, "$share/tmp/s/#", 1)
	s.Detach(time.Hour)
	p.topic("s/1", "kept")
	return offset, producer
}

// checkNode checks what a restart has left of it.
func checkNode(t *testing.T, b *Broker, offset OffsetCommit, producer int64) {
	t.Helper()
	c := connect(t, b)
	info := declare(t, c, QueueSpec{Name: "q", Durable: true, Type: kernel.Quorum, Arguments: []kernel.Argument{{Name: "x-retention", Value: "1h"}}})
	if info.Ready != 1 {
		t.Errorf("%+v", info)
	}
	if info, err := c.Queue("$share/audit/q"); err != nil || info.Ready != 2 {
		t.Errorf("%+v, %v", info, err)
	}
	for _, name := range []string{"volatile", "$share/tmp/s/#"} {
		_, err := c.Queue(name)
		wantCode(t, err, kernel.CodeNotFound)
	}
	if kt, ok := c.Topic("waiting"); !ok || kt.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", kt, ok)
	}
	p := publisher(t, c)
	if n := p.exchange("x", "a.c", "3"); n != 1 {
		t.Errorf("matched %d", n)
	}
	if n := p.exchange("amq.direct", "k", "4"); n != 1 {
		t.Errorf("matched %d", n)
	}
	_, err := c.Exchange("gone")
	wantCode(t, err, kernel.CodeNotFound)
	if got, err := c.Offsets("readers"); err != nil || !slices.Equal(got, []OffsetCommit{offset}) {
		t.Errorf("%+v, %v", got, err)
	}
	if next, err := c.NewProducerID(soon(t)); err != nil || next <= producer {
		t.Errorf("producer id %d after %d, %v", next, producer, err)
	}
	s, present := attach(t, c, "client", false, time.Hour)
	if !present || len(s.State().Subscriptions) != 3 {
		t.Fatalf("present %v, %+v", present, s.State())
	}
	box := newInbox()
	a, err := s.Attach(soon(t), kernel.Subscription{Filter: "s/+", QoS: 1}, 0, box, box)
	if err != nil {
		t.Fatal(err)
	}
	a.Member.Credit(10)
	if got := box.wait(t, 1); got[0] != "kept" {
		t.Errorf("got %q", got)
	}
	if info, err := c.Queue("$share/g/s/#"); err != nil || info.Ready != 1 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, present = attach(t, connect(t, b), "temporary", false, 0); present {
		t.Error("a session without expiry outlived the process")
	}
}

// TestPowerLoss drops what was not synced, with the keyed state, which the log
// must bring back.
func TestPowerLoss(t *testing.T) {
	fs := vfs.NewMem()
	b := open(t, "/node", func(c *Config) { c.FS = fs })
	offset, producer := fillNode(t, b)
	after := fs.CrashClone(nil)
	shut(t, b)
	checkNode(t, open(t, "/node", func(c *Config) { c.FS = after }), offset, producer)
}

func TestClusterListener(t *testing.T) {
	if _, err := Open(Config{DataDir: t.TempDir(), Cluster: Cluster{Listen: "0.0.0.0:0"}}); err == nil {
		t.Error("an open cluster listener is not protected by anything")
	}
	b := open(t, t.TempDir(), func(c *Config) { c.Cluster.Listen = "127.0.0.1:0" })
	declare(t, connect(t, b), QueueSpec{Name: "q", Durable: true})
}

func TestSessionExpiry(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func(c *Config) { c.Now = func() time.Time { return now } }
	b := open(t, dir, clock)
	for _, id := range []string{"short", "long", "ever"} {
		c := connect(t, b)
		expiry := map[string]time.Duration{"short": time.Hour, "long": 3 * time.Hour, "ever": kernel.SessionForever}[id]
		s, _ := attach(t, c, id, true, expiry)
		subscribe(t, s, id+"/#", 1)
		s.Detach(expiry)
		if id != "ever" {
			e := b.tenants.load()["/"].sessions[id]
			e.mu.Lock()
			e.stamp(soon(t)) // as its timer does after a minute
			e.mu.Unlock()
		}
	}
	shut(t, b)
	now = now.Add(2 * time.Hour)
	b = open(t, dir, clock)
	for id, want := range map[string]bool{"short": false, "long": true, "ever": true} {
		if _, present := attach(t, connect(t, b), id, false, time.Hour); present != want {
			t.Errorf("%s: present %v", id, present)
		}
		if n := publisher(t, connect(t, b)).topic(id+"/x", "m"); (n == 1) != want {
			t.Errorf("%s: matched %d", id, n)
		}
	}
}

// TestClusterID: every cluster has an id of its own, which outlives restarts; a
// directory from before there were ids gets one.
func TestClusterID(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	first := b.ClusterID()
	shut(t, b)
	if raw, err := base64.RawURLEncoding.DecodeString(first); err != nil || len(raw) != 16 {
		t.Errorf("%q is no UUID: %v", first, err)
	}
	if other := open(t, t.TempDir()); other.ClusterID() == first {
		t.Errorf("two clusters have the id %q", first)
	}
	old := fmt.Sprintf(`{"format":%d,"node":%q,"used":true}`, FormatVersion, b.node.file.Node)
	if err := os.WriteFile(filepath.Join(dir, nodeFileName), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir)
	given := b.ClusterID()
	shut(t, b)
	if again := open(t, dir); given == "" || again.ClusterID() != given {
		t.Errorf("cluster id %q, then %q", given, again.ClusterID())
	}
}

func TestDataDirectory(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, func(c *Config) { c.NodeID = "n1" })
	if _, err := Open(Config{DataDir: dir}); !errors.Is(err, ErrLocked) {
		t.Errorf("second process: %v", err)
	}
	shut(t, b)
	if _, err := Open(Config{DataDir: dir, NodeID: "n2"}); !errors.Is(err, ErrIdentity) {
		t.Errorf("another node: %v", err)
	}
	cluster := b.ClusterID()
	if b = open(t, dir); b.node.file.Node != "n1" || b.ClusterID() != cluster {
		t.Errorf("node id %q, cluster id %q after %q", b.node.file.Node, b.ClusterID(), cluster)
	}
	shut(t, b)
	file := fmt.Sprintf(`{"format":%d,"node":"n1"}`, FormatVersion+1)
	if err := os.WriteFile(filepath.Join(dir, nodeFileName), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{DataDir: dir}); !errors.Is(err, ErrFormat) {
		t.Errorf("another format: %v", err)
	}
}

// TestIncompleteDirectory: a directory that has been used and lacks its log or its
// node file is not taken for an empty one, at the second try either.
func TestIncompleteDirectory(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"log":       func(dir string) error { return os.RemoveAll(filepath.Join(dir, walDir)) },
		"node file": func(dir string) error { return os.Remove(filepath.Join(dir, nodeFileName)) },
		"log files": func(dir string) error {
			files, err := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
			for _, f := range files {
				err = errors.Join(err, os.Remove(f))
			}
			return err
		},
		"log, by an older node file": func(dir string) error {
			file := fmt.Sprintf(`{"format":%d,"node":"n1"}`, FormatVersion)
			return errors.Join(os.RemoveAll(filepath.Join(dir, walDir)),
				os.WriteFile(filepath.Join(dir, nodeFileName), []byte(file), 0o600),
				os.WriteFile(filepath.Join(dir, catalogDir, "x.ckpt"), nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			shut(t, open(t, dir))
			if err := lose(dir); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if b, err := Open(Config{DataDir: dir}); !errors.Is(err, ErrIncomplete) {
					if err == nil {
						shut(t, b)
					}
					t.Fatalf("opened: %v", err)
				}
			}
		})
	}
}

// TestFirstStartInterrupted: a first start that was cut short at any file system
// operation is made up for by the next.
func TestFirstStartInterrupted(t *testing.T) {
	power := errors.New("power lost")
	for after := range 40 {
		disk := vfs.NewMem()
		var left *vfs.MemFS
		var once sync.Once // operations come from several goroutines
		fault := vfs.NewFault(disk, vfs.Rule{After: after, Err: power, Before: func(vfs.Op, string) {
			once.Do(func() { left = disk.CrashClone(nil) })
		}})
		if b, err := Open(Config{DataDir: "/node", FS: fault}); err == nil {
			shut(t, b)
		}
		if left == nil {
			return
		}
		shut(t, open(t, "/node", func(c *Config) { c.FS = left }))
	}
}

// TestTornTailIsTold: that something was cut off the log is one line in the node's.
func TestTornTailIsTold(t *testing.T) {
	dir := t.TempDir()
	shut(t, open(t, dir))
	files, err := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(data, "\x00")) + 64
	copy(data[end:], "torn")
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	shut(t, open(t, dir, func(c *Config) { c.Logger = zerolog.New(zerolog.SyncWriter(&out)) }))
	if got := strings.Count(out.String(), "cut off the log"); got != 1 {
		t.Errorf("%d lines: %s", got, &out)
	}
}
