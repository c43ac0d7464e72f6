package broker

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// FormatVersion is the version of the data directory as a whole. Every file in
// it has a version of its own besides.
const FormatVersion = 2

var (
	// ErrLocked: another process uses the data directory.
	ErrLocked = errors.New("the data directory is in use by another process")
	// ErrFormat: the data directory belongs to another version.
	ErrFormat = errors.New("the data directory has another format version")
	// ErrIdentity: the data directory belongs to another node.
	ErrIdentity = errors.New("the data directory belongs to another node")
	// ErrIncomplete: something of the data directory is missing without which it
	// would be taken for an empty one.
	ErrIncomplete = errors.New("the data directory is incomplete")
	// ErrCluster: the cluster listener cannot be opened at that address.
	ErrCluster = errors.New("cluster listener")
)

// nodeFile says whose data directory it is. It is the first thing in it, and is
// written a second time once there is a write-ahead log: from then on a directory
// without one has lost it.
type nodeFile struct {
	Format int    `json:"format"`
	Node   string `json:"node"`
	// Raft is the node's name in its Raft groups, empty in the directory of a founder,
	// whose name is Node. That of a node that has joined is never used again.
	Raft string `json:"raft,omitempty"`
	// Incarnation tells this directory from all others, also from one of the same
	// Node that was there before; drawn once.
	Incarnation string `json:"incarnation,omitempty"`
	// Cluster is the id of the cluster: drawn once by the node that has founded it,
	// empty until a node that is to join one is let in.
	Cluster string `json:"cluster,omitempty"`
	// Secret makes up the SCRAM keys of users that there are not, drawn once:
	// after a restart they are to look the same.
	Secret []byte `json:"secret,omitempty"`
	Used   bool   `json:"used,omitempty"`
}

const (
	nodeFileName = "node.json"
	lockFileName = "lock"
	maxNodeFile  = 4096
)

// raftID is the node's name in its Raft groups.
func (n *nodeFile) raftID() string { return cmp.Or(n.Raft, n.Node) }

// joined reports whether the node is not the one that has founded its cluster.
func (n *nodeFile) joined() bool { return n.Raft != "" }

// claimDir makes and locks a data directory and returns whose it is. A new one is a
// founder's, or with join that of a node that is to be let in somewhere.
func claimDir(fsys vfs.FS, dir, want string, join bool) (n nodeFile, lock io.Closer, err error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return n, nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err = fsys.Lock(path.Join(dir, lockFileName))
	if errors.Is(err, vfs.ErrLocked) {
		return n, nil, fmt.Errorf("%s: %w", dir, ErrLocked)
	} else if err != nil {
		return n, nil, fmt.Errorf("data directory: %w", err)
	}
	n, err = identify(fsys, dir, want, join)
	if err != nil {
		return n, nil, errors.Join(fmt.Errorf("%s: %w", dir, err), lock.Close())
	}
	return n, lock, nil
}

// identify reads the node file, or writes it in a directory that is empty.
func identify(fsys vfs.FS, dir, want string, join bool) (n nodeFile, err error) {
	f, err := fsys.Open(path.Join(dir, nodeFileName))
	if errors.Is(err, fs.ErrNotExist) {
		if err := unused(fsys, dir); err != nil {
			return n, err
		}
		if want == "" {
			want = newNodeID()
		}
		n = nodeFile{Format: FormatVersion, Node: want, Incarnation: newIncarnation()}
		if join {
			n.Raft = n.Node + "-" + n.Incarnation[:8]
		} else {
			n.found()
		}
		return n, writeNodeFile(fsys, dir, n)
	} else if err != nil {
		return n, err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxNodeFile))
	if err = errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return n, fmt.Errorf("%s: %w", nodeFileName, err)
	}
	switch {
	case n.Format != FormatVersion:
		return n, fmt.Errorf("%w: %d, this program needs %d", ErrFormat, n.Format, FormatVersion)
	case n.Node == "":
		return n, fmt.Errorf("%s: it names no node", nodeFileName)
	case want != "" && want != n.Node:
		return n, fmt.Errorf("%w: %s, not %s", ErrIdentity, n.Node, want)
	}
	if n.joined() || n.Cluster != "" && len(n.Secret) > 0 && n.Incarnation != "" {
		return n, nil
	}
	n.found() // written before there was all of this
	return n, writeNodeFile(fsys, dir, n)
}

// found makes the node the founder of a cluster.
func (n *nodeFile) found() {
	n.Raft = ""
	if n.Incarnation == "" {
		n.Incarnation = newIncarnation()
	}
	if n.Cluster == "" {
		n.Cluster = newClusterID()
	}
	if len(n.Secret) == 0 {
		n.Secret = newSecret()
	}
}

// dirs of a data directory, in the order in which they are made.
const (
	walDir       = "wal"
	kvDir        = "kv"
	catalogDir   = "catalog"
	placementDir = "placement-1"
)

// unused returns an error if something of a node is in a directory that does not
// say whose it is.
func unused(fsys vfs.FS, dir string) error {
	for _, sub := range []string{walDir, catalogDir, placementDir, kvDir} {
		if _, err := fsys.List(path.Join(dir, sub)); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("%w: %s is missing, but %s is there", ErrIncomplete, nodeFileName, sub), err)
		}
	}
	return nil
}

// openLog opens the write-ahead log of a claimed directory. Only a directory that
// has never been used gets a new one.
func openLog(fsys vfs.FS, dir string, n nodeFile, opts wal.Options) (*wal.WAL, error) {
	opts.MustExist = n.Used
	for _, sub := range []string{catalogDir, path.Join(placementDir, "checkpoints"), path.Join(placementDir, "segments")} {
		names, err := fsys.List(path.Join(dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("data directory: %w", err)
		}
		opts.MustExist = opts.MustExist || len(names) > 0
	}
	log, err := wal.Open(fsys, path.Join(dir, walDir), opts)
	if errors.Is(err, wal.ErrMissing) {
		return nil, fmt.Errorf("%s: %w: what was confirmed is in the write-ahead log: %w", dir, ErrIncomplete, err)
	}
	if err != nil || n.Used {
		return log, err
	}
	n.Used = true
	if err := writeNodeFile(fsys, dir, n); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), log.Close())
	}
	return log, nil
}

func writeNodeFile(fsys vfs.FS, dir string, n nodeFile) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := vfs.ReplaceFile(fsys, path.Join(dir, nodeFileName), append(data, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", nodeFileName, err)
	}
	return nil
}

func newNodeID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return "node-" + hex.EncodeToString(b[:])
}

func newIncarnation() string {
	id := newTopicID()
	return hex.EncodeToString(id[:])
}

func newSecret() []byte {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return secret
}

// newClusterID draws a UUID, written as Kafka's clients know it: 22 characters
// of base64url.
func newClusterID() string {
	id := newTopicID()
	return base64.RawURLEncoding.EncodeToString(id[:])
}
