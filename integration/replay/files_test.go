package main

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// known is the toolchain that the changes were written for.
const known = "go1.26.8"

// TestToolchainIsKnown: the toolchain in use has what is changed, once each. Another one may
// well be refused, and builds everything else.
func TestToolchainIsKnown(t *testing.T) {
	if v := runtime.Version(); v != known {
		t.Skipf("%s, not %s", v, known)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := change(filepath.Join(strings.TrimSpace(string(root)), "src"), t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestOtherToolchainIsRefused: what is not there, or twice, is not guessed at.
func TestOtherToolchainIsRefused(t *testing.T) {
	f := file{edits: []edit{{"a", "b"}}, end: "!"}
	for _, text := range []string{"", "xyz", "a and a"} {
		if got, err := f.apply(text); err == nil {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	if got, err := f.apply("xax"); err != nil || got != "xbx!" {
		t.Errorf("%q, %v", got, err)
	}
}
