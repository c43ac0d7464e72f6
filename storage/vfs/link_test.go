package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLink: a second name of a file stays when the first one goes, and another file
// system than the real one has none.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Link(osFS{}, from, to); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(from); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != "content" {
		t.Errorf("%q, %v", b, err)
	}
	if err := Link(osFS{}, from, to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := Link(NewMem(), "a", "b"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("in memory: %v", err)
	}
}
