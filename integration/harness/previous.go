package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// PreviousVersion is what the binary that Previous builds calls itself.
const PreviousVersion = "previous"

// Previous builds the binary of an earlier version: that of the newest tag before the
// present commit, or without tags of the commit that the file named holds. It skips the
// test where there is no git, or the commit is not in the clone.
func Previous(t testing.TB, file string) (binary, commit string) {
	t.Helper()
	root, err := moduleRoot()
	Must(t, err)
	git := func(args ...string) *exec.Cmd {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		return cmd
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git: an earlier version cannot be built")
	}
	if tag, err := git("describe", "--tags", "--abbrev=0", "HEAD~1").Output(); err == nil {
		commit = strings.TrimSpace(string(tag))
	} else {
		named, err := os.ReadFile(file)
		Must(t, err)
		commit = strings.TrimSpace(string(named))
	}
	if out, err := git("cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("commit %s is not in this clone (git fetch --unshallow gets it): %s", commit, out)
	}
	dir := t.TempDir()
	if err := unpack(git("archive", commit), dir); err != nil {
		t.Fatalf("unpack commit %s: %v", commit, err)
	}
	binary = filepath.Join(dir, "trivium.previous")
	// As make builds it, so that go's cache has most of it.
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.Version="+PreviousVersion, "-o", binary, "./cmd/trivium")
	build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build commit %s: %v\n%s", commit, err, out)
	}
	return binary, commit
}

// unpack has tar make files of what a command writes.
func unpack(archive *exec.Cmd, dir string) error {
	tar := exec.Command("tar", "-x", "-C", dir)
	var said strings.Builder
	archive.Stderr, tar.Stderr = &said, &said
	pipe, err := archive.StdoutPipe()
	if err != nil {
		return err
	}
	tar.Stdin = pipe
	if err := archive.Start(); err != nil {
		return err
	}
	err = tar.Run()
	if err := errors.Join(err, archive.Wait()); err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	return nil
}
