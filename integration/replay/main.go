// Command replay builds a test that plays histories of goroutines again, nearly always exactly: the
// scheduler, select, maps and the functions of math/rand draw, within a bubble of
// testing/synctest, from a seed of the test. What still differs now and then is not known.
//
//	go run ./integration/replay -o bin/edges.test ./kernel/forward
//
// It changes copies of some files of the toolchain in use and gives them to go test by
// -overlay; nothing of that is in any other build. A toolchain whose files do not look as
// expected is refused. The test is built with the tag trivium_replay.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("o", "", "the test binary to make")
	tags := flag.String("tags", "", "further build tags, separated by commas")
	flag.Parse()
	if *out == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: replay -o FILE [-tags TAGS] PACKAGE")
		os.Exit(2)
	}
	if err := build(*out, *tags, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

// build makes the test binary of a package.
func build(out, tags, folder string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	dir, err := os.MkdirTemp("", "trivium-replay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := change(filepath.Join(strings.TrimSpace(string(root)), "src"), dir)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-c", "-overlay", overlay, "-tags", strings.Trim("trivium_replay,"+tags, ","), "-o", out, folder)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// change writes the changed files into dir, and a list of them for -overlay, whose name it
// returns.
func change(src, dir string) (overlay string, err error) {
	list := struct{ Replace map[string]string }{make(map[string]string)}
	for i, f := range files {
		from := filepath.Join(src, filepath.FromSlash(f.name))
		raw, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		text, err := f.apply(string(raw))
		if err != nil {
			return "", fmt.Errorf("%s: %w", from, err)
		}
		to := filepath.Join(dir, fmt.Sprint(i, "_", filepath.Base(from)))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		list.Replace[from] = to
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, raw, 0o600)
}
