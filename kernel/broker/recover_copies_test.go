package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// smallVolume has the log in the smallest files.
type smallVolume struct{ vfs.FS }

func (smallVolume) Capacity(string) (int64, error) { return 1 << 20, nil }

// TestRecoverCopies: the entries of the catalog have been moved ahead into newer
// files. Damage to a file, early or late, costs neither the other files nor the
// queue, and a node starts afterwards.
func TestRecoverCopies(t *testing.T) {
	const count = 170
	src := t.TempDir()
	b := open(t, src, func(c *Config) {
		c.FS = smallVolume{vfs.OS()}
		c.Limits.Placement.SealBytes = 8 << 20
	})
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true, Type: kernel.Quorum})
	p := publisher(t, c)
	for i := range count {
		p.exchange("", "q", fmt.Sprintf("%05d%s", i, strings.Repeat("x", 1<<20)))
	}
	shut(t, b)
	log := files(t, filepath.Join(src, "wal"), ".wal")
	if strings.HasSuffix(log[0], "0001.wal") {
		t.Fatalf("%v: nothing has been moved ahead", log)
	}
	for i, name := range log {
		for _, at := range []int64{3 << 20, 28 << 20, -1} {
			t.Run(fmt.Sprintf("file=%d,at=%d", i, at), func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
					t.Fatal(err)
				}
				name := filepath.Join(dir, "wal", filepath.Base(name))
				if at < 0 {
					if i > 0 && i < len(log)-1 {
						return
					}
					if err := os.Remove(name); err != nil {
						t.Fatal(err)
					}
				} else {
					damage(t, name, at)
				}
				if b, err := Open(Config{DataDir: dir}); err == nil {
					shut(t, b)
					return // an unused place
				} else if !strings.Contains(err.Error(), "trivium recover") {
					t.Fatal(err)
				}
				found := recovered(t, dir)
				b := open(t, dir)
				if len(heldIn(t, b)) == 0 {
					t.Errorf("no message is left, %+v", found)
				}
				usable(t, b)
			})
		}
	}
}
