package broker

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// FormatVersion is the version of the data directory as a whole. Every file in
// it has a version of its own besides.
const FormatVersion = 1

var (
	// ErrLocked: another process uses the data directory.
	ErrLocked = errors.New("the data directory is in use by another process")
	// ErrFormat: the data directory belongs to another version.
	ErrFormat = errors.New("the data directory has another format version")
	// ErrIdentity: the data directory belongs to another node.
	ErrIdentity = errors.New("the data directory belongs to another node")
	// ErrCluster: the cluster listener cannot be opened at that address.
	ErrCluster = errors.New("cluster listener")
)

// nodeFile says whose data directory it is. It is written once.
type nodeFile struct {
	Format int    `json:"format"`
	Node   string `json:"node"`
}

const (
	nodeFileName = "node.json"
	lockFileName = "lock"
	maxNodeFile  = 4096
)

// claimDir makes and locks a data directory and returns whose it is.
func claimDir(fsys vfs.FS, dir, want string) (id string, lock io.Closer, err error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return "", nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err = fsys.Lock(path.Join(dir, lockFileName))
	if errors.Is(err, vfs.ErrLocked) {
		return "", nil, fmt.Errorf("%s: %w", dir, ErrLocked)
	} else if err != nil {
		return "", nil, fmt.Errorf("data directory: %w", err)
	}
	id, err = nodeID(fsys, dir, want)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("%s: %w", dir, err), lock.Close())
	}
	return id, lock, nil
}

// nodeID reads the node file, or writes it in a directory that has none.
func nodeID(fsys vfs.FS, dir, want string) (string, error) {
	name := path.Join(dir, nodeFileName)
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if want == "" {
			want = newNodeID()
		}
		return want, writeNodeFile(fsys, dir, nodeFile{Format: FormatVersion, Node: want})
	} else if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxNodeFile))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	var n nodeFile
	if err := json.Unmarshal(data, &n); err != nil {
		return "", fmt.Errorf("%s: %w", nodeFileName, err)
	}
	switch {
	case n.Format != FormatVersion:
		return "", fmt.Errorf("%w: %d, this program needs %d", ErrFormat, n.Format, FormatVersion)
	case n.Node == "":
		return "", fmt.Errorf("%s: it names no node", nodeFileName)
	case want != "" && want != n.Node:
		return "", fmt.Errorf("%w: %s, not %s", ErrIdentity, n.Node, want)
	}
	return n.Node, nil
}

func writeNodeFile(fsys vfs.FS, dir string, n nodeFile) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	name := path.Join(dir, nodeFileName)
	f, err := fsys.Create(name + ".tmp")
	if err != nil {
		return err
	}
	_, err = f.WriteAt(append(data, '\n'), 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", nodeFileName, err)
	}
	if err := fsys.Rename(name+".tmp", name); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

func newNodeID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return "node-" + hex.EncodeToString(b[:])
}
