// Package arch holds the rules of the code base as tests: which package may
// import which, and how large files and functions may grow.
package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/trivium-mq/trivium/"

// walls lists, per folder prefix, the only folders of ours it may import. The
// longest matching prefix counts. Test files may import more.
var walls = []struct {
	folder  string
	imports []string
}{
	{"storage/vfs", nil},
	{"storage/record", nil},
	{"storage", []string{"storage"}},
	{"sharegroup", []string{"sharegroup"}},
	{"kernel/route", []string{"kernel", "metasvc/codec", "metasvc/pmap"}},
	{"kernel", []string{"kernel", "metasvc", "sharegroup", "storage"}},
	{"metasvc", []string{"kernel", "metasvc", "storage"}},
	{"protocols/amqp", []string{"kernel", "kernel/broker", "kernel/edge", "protocols/amqp", "protocols/listener"}},
	{"protocols/mqtt", []string{"kernel", "kernel/broker", "kernel/edge", "protocols/mqtt", "protocols/listener"}},
	{"protocols/kafka", []string{"kernel", "kernel/broker", "kernel/edge", "protocols/kafka", "protocols/listener"}},
	{"protocols/admin", []string{"kernel", "kernel/broker", "protocols/admin", "protocols/listener"}},
	{"protocols/listener", nil},
	{"cmd", []string{"cmd", "protocols", "kernel", "metasvc", "sharegroup", "storage"}},
	{"integration", []string{"integration", "cmd", "protocols", "kernel", "metasvc", "sharegroup", "storage"}},
}

// nounsOnly are the folders that may use the kernel's nouns and facade, but none
// of its parts: to them the folders in exact are open without their sub-packages.
var (
	nounsOnly = []string{"metasvc", "protocols"}
	exact     = map[string]bool{"kernel": true, "kernel/broker": true, "kernel/edge": true, "protocols/listener": true}
)

var forbiddenNames = []string{"common", "util", "utils", "helper", "helpers", "types", "interfaces", "pkg"}

type source struct {
	folder, path string
	file         *ast.File
	set          *token.FileSet
	lines        int
	generated    bool
}

func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "node_modules" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, raw, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		out = append(out, source{
			folder: filepath.ToSlash(filepath.Dir(rel)), path: filepath.ToSlash(rel), file: f, set: set,
			lines: bytes.Count(raw, []byte("\n")), generated: ast.IsGenerated(f),
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func under(folder, prefix string) bool {
	return folder == prefix || strings.HasPrefix(folder, prefix+"/")
}

func allowed(folder, imported string) bool {
	var best []string
	longest := -1
	for _, w := range walls {
		if under(folder, w.folder) && len(w.folder) > longest {
			best, longest = w.imports, len(w.folder)
		}
	}
	for _, a := range best {
		strict := exact[a] && slices.ContainsFunc(nounsOnly, func(f string) bool { return under(folder, f) })
		if imported == a || !strict && under(imported, a) {
			return true
		}
	}
	return imported == folder
}

func TestImportsPointOneWay(t *testing.T) {
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			ours, ok := strings.CutPrefix(path, module)
			if ok && !allowed(s.folder, ours) {
				t.Errorf("%s imports %s: not allowed for %s", s.path, ours, s.folder)
			}
		}
	}
}

func TestEveryFolderIsBehindAWall(t *testing.T) {
	for _, s := range sources(t) {
		known := false
		for _, w := range walls {
			known = known || under(s.folder, w.folder)
		}
		if !known {
			t.Errorf("%s: folder %s has no entry in walls", s.path, s.folder)
		}
	}
}

func TestPackageNamesSayWhatTheyHold(t *testing.T) {
	for _, s := range sources(t) {
		for _, bad := range forbiddenNames {
			if s.file.Name.Name == bad {
				t.Errorf("%s: package %s says nothing about what it holds", s.path, bad)
			}
		}
	}
}

const (
	maxFileLines     = 500
	maxFunctionLines = 70
)

func TestFilesAndFunctionsFitTheEye(t *testing.T) {
	for _, s := range sources(t) {
		if s.generated || strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		if s.lines > maxFileLines {
			t.Errorf("%s has %d lines, more than %d", s.path, s.lines, maxFileLines)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
			if lines > maxFunctionLines {
				t.Errorf("%s: %s has %d lines, more than %d", s.path, f.Name.Name, lines, maxFunctionLines)
			}
		}
	}
}

func TestNoSleepInTests(t *testing.T) {
	for _, s := range sources(t) {
		if !strings.HasSuffix(s.path, "_test.go") || hasFakeClock(s) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
				t.Errorf("%s: time.Sleep; wait on a condition", s.set.Position(n.Pos()))
			}
			return true
		})
	}
}

// hasFakeClock: in a synctest bubble a sleep is how time passes.
func hasFakeClock(s source) bool {
	for _, imp := range s.file.Imports {
		if imp.Path.Value == `"testing/synctest"` {
			return true
		}
	}
	return false
}
