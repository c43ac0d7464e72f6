package damage

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

var says = harness.Says

// refuses checks that a node does not start on the directory, and says what to do.
func refuses(t *testing.T, b *harness.Broker, want ...string) {
	t.Helper()
	says(t, 1, []string{"serve", "--data", b.Dir, "--amqp", "off", "--mqtt", "off", "--kafka", "off", "--http", "off", "--cluster", "off"}, want...)
}

// recovers checks that `recover` names what is lost, changes nothing by that, and makes
// the directory one that the node starts on.
func recovers(t *testing.T, b *harness.Broker, lost ...string) string {
	t.Helper()
	check := says(t, 1, []string{"recover", "--data", b.Dir, "--check"}, lost...)
	says(t, 2, []string{"recover", "--data", b.Dir}, "one of --check, --accept-loss and --alone")
	says(t, 0, []string{"recover", "--data", b.Dir, "--accept-loss"}, append(lost, "can be started on", "lost+")...)
	aside, err := filepath.Glob(filepath.Join(b.Dir, "lost+*", "report.txt"))
	must(t, err)
	if len(aside) != 1 {
		t.Fatalf("reports: %v", aside)
	}
	report, err := os.ReadFile(aside[0])
	must(t, err)
	for _, l := range lost {
		if !strings.Contains(string(report), l) {
			t.Errorf("the report lacks %q:\n%s", l, report)
		}
	}
	says(t, 0, []string{"recover", "--data", b.Dir, "--check"}, "no damage found")
	b.Run()
	return check
}

// filled is a node that was stopped, with so many confirmed messages in queue "q".
func filled(t *testing.T, count int) *harness.Broker {
	t.Helper()
	b := filling(t, count)
	if code := b.Stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, b.Output())
	}
	return b
}

// filling is filled while it runs.
func filling(t *testing.T, count int) *harness.Broker {
	t.Helper()
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "q")
	harness.Must(t, ch.Confirm(false))
	for i := range count {
		harness.Confirmed(t, ch, "", "q", amqp.Publishing{Body: numbered(i, false), DeliveryMode: amqp.Persistent})
	}
	return b
}

// held takes all that queue "q" has, which must be the first messages in order, and
// checks that the node takes and gives more.
func held(t *testing.T, b *harness.Broker) (count int) {
	t.Helper()
	_, ch := b.DialAMQP(t)
	next := func() (string, bool) {
		d, ok, err := ch.Get("q", true)
		must(t, err)
		return string(d.Body), ok
	}
	for ; ; count++ {
		body, ok := next()
		if !ok {
			break
		}
		if want := string(numbered(count, false)); body != want {
			t.Fatalf("message %d is %q", count, body)
		}
	}
	must(t, ch.Confirm(false))
	harness.Confirmed(t, ch, "", "q", amqp.Publishing{Body: []byte("after"), DeliveryMode: amqp.Persistent})
	if body, ok := next(); !ok || body != "after" {
		t.Errorf("after the recovery: %q, %v", body, ok)
	}
	return count
}

// TestRecoverLog: a node does not start on a log that is damaged in its middle. After
// `recover`, which names what is lost, it has what was before, and serves.
func TestRecoverLog(t *testing.T) {
	const count, bad = 200, 120
	b := filled(t, count)
	log := files(t, b, "wal/*.wal")
	flipAt(t, log[0], string(numbered(bad, false)))
	refuses(t, b, filepath.Base(log[0]), "damaged", "trivium recover --check")
	out := recovers(t, b, filepath.Base(log[0]), "messages and sessions: entries ")
	if strings.Contains(out, "catalog (") {
		t.Errorf("the catalog has lost something:\n%s", out)
	}
	if n := held(t, b); n != bad {
		t.Errorf("%d messages are left, want %d", n, bad)
	}
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.Run()
}

// TestRecoverCatalogOfTheLog: damage where the log has the catalog costs nothing that
// its checkpoint has, also on a node that was never stopped cleanly.
func TestRecoverCatalogOfTheLog(t *testing.T) {
	const count = 50
	b := filling(t, count)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "declared-last")
	harness.Wait(t, 3*harness.Patience, "a checkpoint of the catalog", func() bool {
		list, err := filepath.Glob(filepath.Join(b.Dir, "catalog", "*.ckpt"))
		must(t, err)
		for _, name := range list {
			data, err := os.ReadFile(name)
			must(t, err)
			if bytes.Contains(data, []byte("declared-last")) {
				return true
			}
		}
		return false
	})
	b.Kill()
	log := files(t, b, "wal/*.wal")[0]
	flipAt(t, log, "declared-last")
	refuses(t, b, "trivium recover --check")
	recovers(t, b, filepath.Base(log))
	if n := held(t, b); n != count {
		t.Errorf("%d messages are left, want %d", n, count)
	}
	_, ch = b.DialAMQP(t)
	if _, err := ch.QueueDeclarePassive("declared-last", true, false, false, false, nil); err != nil {
		t.Error(err)
	}
}

// TestRecoverWithoutLog: a log that has gone is refused and named, and what the
// checkpoints have is served.
func TestRecoverWithoutLog(t *testing.T) {
	b := filled(t, 10)
	for _, name := range files(t, b, "wal/*.wal") {
		must(t, os.Remove(name))
	}
	refuses(t, b, "trivium recover --check")
	recovers(t, b, "there is no write-ahead log", "messages and sessions: everything")
	if n := held(t, b); n != 0 {
		t.Errorf("%d messages", n)
	}
}

// TestRecoverKeyedState: damaged files of keyed state make their checkpoint useless,
// and with the only one everything of the placement group is lost; queues stay.
func TestRecoverKeyedState(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "q")
	c := b.DialMQTT(t, harness.Name("keeper"))
	harness.Done(t, c.Publish("kept", 1, true, strings.Repeat("retained ", 100)))
	sealed(t, b, "log")
	harness.Wait(t, harness.Patience, "a checkpoint", func() bool {
		list, err := filepath.Glob(filepath.Join(b.Dir, "placement-1", "checkpoints", "*.ckpt"))
		must(t, err)
		return len(list) > 0
	})
	if code := b.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	list := files(t, b, "placement-1/keys/*")
	for _, name := range list {
		flip(t, name, -1)
	}
	refuses(t, b, "trivium recover --check")
	recovers(t, b, "messages and sessions: everything")
	if n := held(t, b); n != 0 {
		t.Errorf("%d messages", n)
	}
}

// TestRecoverVersion: a damaged version byte is told from another version, and costs
// nothing. Another version is refused by the node and by `recover`, which change
// nothing.
func TestRecoverVersion(t *testing.T) {
	const count = 20
	b := filled(t, count)
	log := files(t, b, "wal/*.wal")[0]
	flip(t, log, 4)
	refuses(t, b, filepath.Base(log), "trivium recover --check")
	recovers(t, b, filepath.Base(log))
	if n := held(t, b); n != count {
		t.Errorf("%d messages are left, want %d", n, count)
	}
	if code := b.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	log = files(t, b, "wal/*.wal")[0]
	data, err := os.ReadFile(log)
	must(t, err)
	data[4]++
	binary.LittleEndian.PutUint32(data[20:], crc32.Checksum(data[:20], crc32.MakeTable(crc32.Castagnoli)))
	must(t, os.WriteFile(log, data, 0o600))
	refuses(t, b, filepath.Base(log), "version")
	for _, how := range []string{"--check", "--accept-loss"} {
		says(t, 1, []string{"recover", "--data", b.Dir, how}, filepath.Base(log), "version")
	}
	if after, err := os.ReadFile(log); err != nil || !bytes.Equal(after, data) {
		t.Errorf("the log of another version was changed: %v", err)
	}
}

// TestRecoverOfOtherDirectories: a path that is mistaken is neither damaged nor made a
// data directory.
func TestRecoverOfOtherDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, how := range []string{"--check", "--accept-loss"} {
		says(t, 2, []string{"recover", "--data", dir, how}, "not the data directory of a node")
		says(t, 2, []string{"recover", "--data", filepath.Join(dir, "none"), how}, "no such file or directory")
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("recover has left %v", left)
	}
}
