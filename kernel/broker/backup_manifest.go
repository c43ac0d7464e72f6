package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// The manifest of a backup: docs/formats/backup.md. It is written last.
const (
	manifestName   = "backup.json"
	manifestFormat = 1
	maxManifest    = 64 << 20
	maxBackupFiles = 1 << 20
)

// ErrBackup: a directory holds no backup that can be restored.
var ErrBackup = errors.New("this is no backup that can be restored")

// backupManifest says what a backup is of, and what is in it.
type backupManifest struct {
	Format  int           `json:"format"`
	Data    int           `json:"data_format"` // FormatVersion
	Version string        `json:"version"`     // of the program
	Cluster string        `json:"cluster"`
	Node    string        `json:"node"`
	Begun   time.Time     `json:"begun"`
	Ended   time.Time     `json:"ended"`
	Groups  []backupGroup `json:"groups"` // catalog, placement group
	Damaged []string      `json:"damaged,omitempty"`
	Files   []backupFile  `json:"files"`
}

// backupGroup is a Raft group in a backup.
type backupGroup struct {
	Group      uint32 `json:"group"`
	Checkpoint uint64 `json:"checkpoint"` // index
	Last       uint64 `json:"last"`       // entry that is in the log besides
	Term       uint64 `json:"term"`       // that the node was in
}

// backupFile is a file of a backup.
type backupFile struct {
	Name string `json:"name"` // in the backup, slash-separated
	Size int64  `json:"size"`
	Sum  string `json:"sha256"`
}

// writeManifest ends a backup.
func writeManifest(fsys vfs.FS, dir string, m *backupManifest) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(line)
	data := append(append(line, '\n'), hex.EncodeToString(sum[:])+"\n"...)
	return vfs.ReplaceFile(fsys, path.Join(dir, manifestName), data)
}

// readManifest reads the manifest of a backup. Errors match ErrBackup, but for those of
// the disk.
func readManifest(fsys vfs.FS, dir string) (*backupManifest, error) {
	f, err := fsys.Open(path.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: it has no %s, which is written last: the backup was interrupted, or this is none", dir, ErrBackup, manifestName)
	} else if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxManifest))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	line, rest, _ := bytes.Cut(data, []byte("\n"))
	sum := sha256.Sum256(line)
	if string(rest) != hex.EncodeToString(sum[:])+"\n" {
		return nil, fmt.Errorf("%s: %w: %s is damaged", dir, ErrBackup, manifestName)
	}
	m := new(backupManifest)
	if err := json.Unmarshal(line, m); err != nil {
		return nil, fmt.Errorf("%s: %w: %s: %w", dir, ErrBackup, manifestName, err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", dir, ErrBackup, err)
	}
	return m, nil
}

func (m *backupManifest) check() error {
	switch {
	case m.Format != manifestFormat:
		return fmt.Errorf("its format is %d, this program needs %d", m.Format, manifestFormat)
	case m.Data != FormatVersion:
		return fmt.Errorf("%w: %d, this program needs %d", ErrFormat, m.Data, FormatVersion)
	case len(m.Groups) != 2 || len(m.Files) > maxBackupFiles:
		return fmt.Errorf("%d groups and %d files", len(m.Groups), len(m.Files))
	}
	for _, f := range m.Files {
		if !inDataDir(f.Name) || f.Size < 0 {
			return fmt.Errorf("a file %q of %d bytes", f.Name, f.Size)
		}
	}
	return nil
}

// inDataDir reports whether a name is that of a file in one of the folders that a backup
// has.
func inDataDir(name string) bool {
	if path.Clean(name) != name || strings.ContainsAny(name, "\\:\x00") {
		return false
	}
	switch path.Dir(name) {
	case walDir, catalogDir, path.Join(placementDir, "checkpoints"), path.Join(placementDir, "keys"), path.Join(placementDir, "segments"):
		return true
	}
	return false
}
