package broker

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// recoverable makes a stopped node with a queue of count messages of 1 KiB, of
// which most are in segments, and returns its directory.
func recoverable(t *testing.T, count int) string {
	t.Helper()
	dir := t.TempDir()
	b := open(t, dir, func(c *Config) { c.Limits.Placement.SealBytes = 1 << 20 })
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true, Type: kernel.Quorum})
	p := publisher(t, c)
	for i := range count {
		p.exchange("", "q", fmt.Sprintf("%05d%s", i, strings.Repeat("x", 1<<10)))
	}
	shut(t, b)
	return dir
}

// damage flips a byte in the middle of a file, or at a given place.
func damage(t *testing.T, name string, at int64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if at < 0 {
		at = int64(len(b)) / 2
	}
	b[at] ^= 0x40
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func files(t *testing.T, dir, suffix string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil || len(list) == 0 {
		t.Fatalf("no *%s in %s: %v", suffix, dir, err)
	}
	slices.Sort(list)
	return list
}

// fingerprint is of all files but those of Badger and the locks.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(name, "/kv/") || strings.EqualFold(d.Name(), "lock") {
			return err
		}
		data, err := os.ReadFile(name)
		fmt.Fprintf(h, "%s %x\n", name, sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// recovered checks that Recover finds the damage and changes nothing, and that
// it mends it; it returns what it has found.
func recovered(t *testing.T, dir string) []Finding {
	t.Helper()
	before := fingerprint(t, dir)
	found, err := Recover(vfs.OS(), dir, "1", false, time.Now())
	if !errors.Is(err, ErrDamaged) || len(found.Damage) == 0 || found.Aside != "" {
		t.Fatalf("%+v, %v", found, err)
	}
	if fingerprint(t, dir) != before {
		t.Fatal("a check has changed something")
	}
	again, err := Recover(vfs.OS(), dir, "1", true, time.Now())
	if err != nil || !slices.Equal(again.Damage, found.Damage) {
		t.Fatalf("%+v, %v; the check has told %+v", again, err, found)
	}
	report, err := os.ReadFile(filepath.Join(again.Aside, "report.txt"))
	for _, f := range found.Damage {
		if err != nil || !strings.Contains(string(report), f.File) {
			t.Fatalf("report %q, %v lacks %s", report, err, f.File)
		}
	}
	return found.Damage
}

// heldIn reads what a queue has, as the numbers of the messages.
func heldIn(t *testing.T, b *Broker) (got []int) {
	t.Helper()
	c := connect(t, b)
	info, err := c.Queue("q")
	if err != nil {
		t.Fatal(err)
	}
	if info.Ready == 0 {
		return nil
	}
	_, in := consume(t, c, "q", kernel.MemberOptions{AutoSettle: true}, int(info.Ready))
	for _, v := range in.wait(t, int(info.Ready)) {
		var n int
		if _, err := fmt.Sscanf(v[:5], "%d", &n); err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	return got
}

// usable checks that a queue takes and gives messages.
func usable(t *testing.T, b *Broker) {
	t.Helper()
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "new", Durable: true, Type: kernel.Quorum})
	publisher(t, c).exchange("", "new", "m")
	if info, err := c.Queue("new"); err != nil || info.Ready != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
}

// TestRecoverLog: damage in the middle of the log keeps a node from starting, and
// Recover gives up what comes after it.
func TestRecoverLog(t *testing.T) {
	const count = 300
	dir := recoverable(t, count)
	log := files(t, filepath.Join(dir, "wal"), ".wal")
	damage(t, log[len(log)-1], 150<<10)
	if _, err := Open(Config{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "trivium recover") {
		t.Fatalf("it starts, or does not say how: %v", err)
	}
	found := recovered(t, dir)
	if len(found) != 1 || !strings.Contains(found[0].Lost, "messages and sessions: entries") {
		t.Fatalf("%+v", found)
	}
	b := open(t, dir)
	got := heldIn(t, b)
	if len(got) == 0 || len(got) >= count {
		t.Fatalf("%d messages are left", len(got))
	}
	for i, n := range got {
		if n != i {
			t.Fatalf("message %d is %d", i, n)
		}
	}
	usable(t, b)
}

// TestRecoverMember: a damaged member of a cluster is told to join anew, and is not made
// to go on with less.
func TestRecoverMember(t *testing.T) {
	dir := recoverable(t, 300)
	peers := `{"cluster":"c","peers":[{"node":"2","raft":"2-abc","address":"h:1"}]}`
	if err := os.WriteFile(filepath.Join(dir, "peers.json"), []byte(peers), 0o600); err != nil {
		t.Fatal(err)
	}
	log := files(t, filepath.Join(dir, "wal"), ".wal")
	damage(t, log[len(log)-1], 150<<10)
	if _, err := Open(Config{DataDir: dir}); !errors.Is(err, ErrMember) || !strings.Contains(err.Error(), "--join") {
		t.Fatalf("it starts, or does not say how: %v", err)
	}
	before := fingerprint(t, dir)
	if found, err := Recover(vfs.OS(), dir, "1", true, time.Now()); !errors.Is(err, ErrMember) || len(found.Damage) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	if fingerprint(t, dir) != before {
		t.Fatal("something has changed")
	}
}

// TestRecoverNoLog: without its log a node has what its checkpoints have: also a
// small catalog has one after a clean stop.
func TestRecoverNoLog(t *testing.T) {
	dir := recoverable(t, 3000)
	for _, name := range files(t, filepath.Join(dir, "wal"), ".wal") {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(Config{DataDir: dir}); !errors.Is(err, ErrIncomplete) {
		t.Fatal(err)
	}
	found := recovered(t, dir)
	if len(found) != 3 || !strings.Contains(found[0].What, "no write-ahead log") ||
		!strings.Contains(found[1].Lost, "users): entries from ") ||
		!strings.Contains(found[2].Lost, "messages and sessions: entries from ") {
		t.Fatalf("%+v", found)
	}
	b := open(t, dir)
	if len(heldIn(t, b)) == 0 {
		t.Error("no message is left")
	}
	usable(t, b)
}

// TestRecoverCheckpoints: of damaged checkpoints the older one is the way back, and
// without any the messages are gone, and the queue stays.
func TestRecoverCheckpoints(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all=%v", all), func(t *testing.T) {
			const count = 4000
			dir := recoverable(t, count)
			list := files(t, filepath.Join(dir, "placement-1", "checkpoints"), ".ckpt")
			if len(list) != 2 {
				t.Fatalf("%d checkpoints", len(list))
			}
			damage(t, list[1], -1)
			if all {
				damage(t, list[0], -1)
				if _, err := Open(Config{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "trivium recover") {
					t.Fatalf("it starts, or does not say how: %v", err)
				}
			}
			found := recovered(t, dir)
			for _, f := range found {
				if all != strings.Contains(f.Lost, "everything") || !strings.Contains(f.What, ".ckpt") {
					t.Errorf("%+v", f)
				}
			}
			b := open(t, dir)
			want := count
			if all {
				want = 0
			}
			if got := heldIn(t, b); len(got) != want {
				t.Errorf("%d messages are left, not %d", len(got), want)
			}
			usable(t, b)
		})
	}
}

// TestRecoverSegment: a segment that is missing is named with the offsets that it
// had, and the others are served.
func TestRecoverSegment(t *testing.T) {
	const count = 4000
	dir := recoverable(t, count)
	list := files(t, filepath.Join(dir, "placement-1", "segments"), ".seg")
	if err := os.Remove(list[0]); err != nil {
		t.Fatal(err)
	}
	found := recovered(t, dir)
	var first, last int
	at := strings.Index(found[0].Lost, "offsets ")
	if len(found) != 1 || at < 0 {
		t.Fatalf("%+v", found)
	}
	if _, err := fmt.Sscanf(found[0].Lost[at:], "offsets %d to %d", &first, &last); err != nil || first != 0 || last <= first || last >= count {
		t.Fatalf("%+v, %v", found, err)
	}
	b := open(t, dir)
	c := connect(t, b)
	_, in := consume(t, c, "q", kernel.MemberOptions{AutoSettle: true}, count)
	got := in.wait(t, count-1-last)
	if n := got[0][:5]; n != fmt.Sprintf("%05d", last+1) {
		t.Errorf("the first one is %s, %d to %d are lost", n, first, last)
	}
	usable(t, b)
}

// TestRecoverIdentity: the file that says whose directory it is is made anew.
func TestRecoverIdentity(t *testing.T) {
	dir := recoverable(t, 10)
	name := filepath.Join(dir, nodeFileName)
	n, err := identify(vfs.OS(), dir, "", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	found, err := Recover(vfs.OS(), dir, n.Node, true, time.Now())
	if err != nil || len(found.Damage) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	if got := heldIn(t, open(t, dir)); len(got) != 10 {
		t.Errorf("%d messages", len(got))
	}
}

// TestRecoverNothing: without damage nothing is done, and nothing while the node
// runs.
func TestRecoverNothing(t *testing.T) {
	dir := recoverable(t, 2500)
	before := fingerprint(t, dir)
	found, err := Recover(vfs.OS(), dir, "1", true, time.Now())
	if err != nil || len(found.Damage) > 0 || found.Aside != "" || fingerprint(t, dir) != before {
		t.Fatalf("%+v, %v", found, err)
	}
	open(t, dir)
	if _, err := Recover(vfs.OS(), dir, "1", true, time.Now()); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
}
