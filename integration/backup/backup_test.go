package backup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestBackupUnderLoad: while clients publish over all protocols a backup is made, twice.
// A node that is restored from either has all that was confirmed before it, over all
// protocols, with session, retained messages and committed offsets, and goes on from there.
func TestBackupUnderLoad(t *testing.T) {
	b := harness.Start(t)
	prepare(t, b.Addresses)
	c := enlist(t, b.Addresses)
	c.reach(t, 300)
	commit(t, b.Addresses, 100)
	was := c.confirmed()
	first := backupOf(t, b.HTTP)
	c.reach(t, 300)
	commit(t, b.Addresses, 200)
	then := c.confirmed()
	second := backupOf(t, b.HTTP)
	c.reach(t, 50) // nobody was held up
	c.dismiss()
	b.Kill()
	for i, from := range []string{first, second} {
		n := restored(t, from)
		committed(t, n.Addresses, int64(100*(i+1)))
		commit(t, n.Addresses, 7)
		committed(t, n.Addresses, 7)
		holds(t, n.Addresses, []counts{was, then}[i])
		n.Stop()
		n.Run()
		committed(t, n.Addresses, 7)
		n.Stop()
	}
}

// TestBackupOfARestoredNode: a node that was restored is backed up and restored again.
func TestBackupOfARestoredNode(t *testing.T) {
	b := harness.Start(t)
	prepare(t, b.Addresses)
	c := enlist(t, b.Addresses)
	c.reach(t, 50)
	c.dismiss()
	want := c.confirmed()
	from := backupOf(t, b.HTTP)
	b.Kill()
	for range 2 {
		n := restored(t, from)
		from = backupOf(t, n.HTTP)
		n.Kill()
	}
	holds(t, restored(t, from).Addresses, want)
}

// TestBackupDamaged: whatever byte of a backup is changed, and whatever file is missing, it
// is refused, and nothing is left where it was to be restored to.
func TestBackupDamaged(t *testing.T) {
	b := harness.Start(t)
	prepare(t, b.Addresses)
	c := enlist(t, b.Addresses)
	c.reach(t, 50)
	c.dismiss()
	from := backupOf(t, b.HTTP)
	folders := map[string]bool{}
	for _, name := range filesOf(t, from) {
		folders[filepath.Dir(name)] = true
		for _, missing := range []bool{false, true} {
			bad := ""
			if missing {
				bad = copyOf(t, from, name)
			} else {
				bad = copyOf(t, from)
				flip(t, filepath.Join(bad, name))
			}
			to := filepath.Join(t.TempDir(), "data")
			says(t, 1, []string{"restore", "--from", bad, "--data", to}, "no backup that can be restored", filepath.Base(name))
			if left, err := os.ReadDir(to); err == nil && len(left) > 0 {
				t.Errorf("%s: %v is left", name, left)
			}
		}
	}
	for _, folder := range []string{".", "wal", "catalog", "placement-1/checkpoints", "placement-1/segments", "placement-1/keys"} {
		if !folders[folder] {
			t.Errorf("the backup has nothing in %s", folder)
		}
	}
}

// TestBackupRefused: directories that are not empty, or the node's own, and relative ones; and
// a data directory that is in use.
func TestBackupRefused(t *testing.T) {
	b := harness.Start(t)
	url := []string{"backup", "--url", "http://" + b.HTTP, "--to"}
	from := backupOf(t, b.HTTP)
	says(t, 1, append(url, from), "not empty")
	says(t, 1, append(url, filepath.Join(b.Dir, "backup")), "data directory")
	says(t, 2, append(url, "relative"), "absolute")
	says(t, 2, url[:3], "--to")
	says(t, 1, append(url, filepath.Join(t.TempDir(), "b"), "--user", "guest", "--password", "wrong"), "Login failed")
	says(t, 2, []string{"restore", "--from", from, "--data", b.Dir}, "not empty")
	says(t, 2, []string{"restore"}, "--from")
	says(t, 1, []string{"restore", "--from", t.TempDir(), "--data", filepath.Join(t.TempDir(), "d")}, "interrupted")
}

// TestBackupInterrupted: what a kill leaves of a backup is known as such; and a node that does not end by itself when
// whoever asked has gone removes what there is.
func TestBackupInterrupted(t *testing.T) {
	b := harness.Start(t)
	prepare(t, b.Addresses)
	c := enlist(t, b.Addresses)
	c.reach(t, 200)
	c.dismiss()
	begin := func() (dir string, gone func()) {
		dir = filepath.Join(t.TempDir(), "backup")
		cmd := command(t, "backup", "--url", "http://"+b.HTTP, "--to", dir, "--rate", "4KiB")
		must(t, cmd.Start())
		harness.Wait(t, harness.Patience, "the backup begins", func() bool {
			list, err := os.ReadDir(filepath.Join(dir, "wal"))
			return err == nil && len(list) > 0
		})
		return dir, func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	dir, gone := begin()
	gone()
	harness.Wait(t, harness.Patience, "nothing is left of it", func() bool {
		list, err := os.ReadDir(dir)
		return err == nil && len(list) == 0
	})
	dir, gone = begin()
	b.Kill()
	gone()
	out := says(t, 1, []string{"restore", "--from", dir, "--data", filepath.Join(t.TempDir(), "data")}, "interrupted")
	if strings.Contains(out, "panic") {
		t.Error(out)
	}
	b.Run()
	holds(t, b.Addresses, c.confirmed())
}
