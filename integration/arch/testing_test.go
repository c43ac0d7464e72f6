package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist: docs/testing.md names no test that has gone.
func TestNamedTestsExist(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)`(Test\\w+)` \\| (\\S+) \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) == 0 {
		t.Fatal("no rows")
	}
	for _, row := range rows {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(row[2])))
		if err != nil || !strings.Contains(string(source), "func "+row[1]+"(t *testing.T)") {
			t.Errorf("%s is not in %s: %v", row[1], row[2], err)
		}
	}
}
