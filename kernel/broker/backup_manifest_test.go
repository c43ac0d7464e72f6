package broker

import (
	"errors"
	"path"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

func sampleManifest() *backupManifest {
	return &backupManifest{
		Format: manifestFormat, Data: FormatVersion, Version: "1", Cluster: "c", Node: "1", Begun: time.Unix(1, 0).UTC(),
		Groups: []backupGroup{{0, 3, 3, 1}, {1, 4, 9, 2}},
		Files:  []backupFile{{Name: path.Join(walDir, "a"), Size: 1, Sum: "00"}},
	}
}

// TestManifestDamage: a manifest with any byte changed, cut anywhere, or longer than it was
// is none.
func TestManifestDamage(t *testing.T) {
	fsys := vfs.NewMem()
	must(t, fsys.MkdirAll("b"))
	if _, err := readManifest(fsys, "b"); !errors.Is(err, ErrBackup) {
		t.Errorf("without any: %v", err)
	}
	must(t, writeManifest(fsys, "b", sampleManifest()))
	if m, err := readManifest(fsys, "b"); err != nil || m.Groups[1].Last != 9 || len(m.Files) != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	f, err := fsys.OpenFile(path.Join("b", manifestName))
	must(t, err)
	size, err := f.Size()
	must(t, err)
	whole := make([]byte, size)
	_, err = f.ReadAt(whole, 0)
	must(t, err)
	refused := func(what string, at int64) {
		if _, err := readManifest(fsys, "b"); !errors.Is(err, ErrBackup) {
			t.Errorf("%s at %d: %v", what, at, err)
		}
	}
	for at := range size {
		_, err := f.WriteAt([]byte{whole[at] ^ 1}, at)
		must(t, err)
		refused("changed", at)
		_, err = f.WriteAt(whole[at:at+1], at)
		must(t, err)
	}
	_, err = f.WriteAt([]byte("\n"), size)
	must(t, err)
	refused("longer", size)
	for at := size - 1; at >= 0; at-- {
		must(t, f.Truncate(at))
		refused("cut", at)
	}
}

// TestManifestNames: a manifest that names files elsewhere, or is of other formats, is
// refused although its checksum is right.
func TestManifestNames(t *testing.T) {
	for what, change := range map[string]func(*backupManifest){
		"another format":      func(m *backupManifest) { m.Format++ },
		"another data format": func(m *backupManifest) { m.Data++ },
		"a group is missing":  func(m *backupManifest) { m.Groups = m.Groups[:1] },
		"above":               func(m *backupManifest) { m.Files[0].Name = "../wal/a" },
		"above in a folder":   func(m *backupManifest) { m.Files[0].Name = "wal/../../a" },
		"absolute":            func(m *backupManifest) { m.Files[0].Name = "/wal/a" },
		"another folder":      func(m *backupManifest) { m.Files[0].Name = "kv/a" },
		"no folder":           func(m *backupManifest) { m.Files[0].Name = nodeFileName },
		"a negative size":     func(m *backupManifest) { m.Files[0].Size = -1 },
	} {
		fsys := vfs.NewMem()
		must(t, fsys.MkdirAll("b"))
		m := sampleManifest()
		change(m)
		must(t, writeManifest(fsys, "b", m))
		if _, err := readManifest(fsys, "b"); !errors.Is(err, ErrBackup) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRestoreLeavesNothing: a restore that finds no room, at any step, leaves an empty
// directory, and one that is not empty as it is.
func TestRestoreLeavesNothing(t *testing.T) {
	fsys := vfs.NewMem()
	must(t, fsys.MkdirAll("b/wal"))
	f, err := fsys.Create("b/wal/a")
	must(t, err)
	_, err = f.WriteAt([]byte("x"), 0)
	must(t, err)
	must(t, writeManifest(fsys, "b", sampleManifest()))
	if _, err := Restore(fsys, "b", "d", "1"); !errors.Is(err, ErrBackup) { // another checksum
		t.Errorf("%v", err)
	}
	if names, err := fsys.List("d"); err != nil || len(names) > 0 {
		t.Errorf("%v is left, %v", names, err)
	}
	fsys.SetFree(0)
	if _, err := Restore(fsys, "b", "d", "1"); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	if names, err := fsys.List("d"); err != nil || len(names) > 0 {
		t.Errorf("%v is left, %v", names, err)
	}
	fsys.SetFree(-1)
	if _, err := Restore(fsys, "b", "b", "1"); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("%v", err)
	}
	if names, err := fsys.List("b"); err != nil || len(names) != 2 {
		t.Errorf("%v is left of the backup, %v", names, err)
	}
}
