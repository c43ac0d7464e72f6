package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// ErrNotEmpty: a data directory is to be new or empty.
var ErrNotEmpty = errors.New("the data directory is not empty")

// Restored is what Restore has made.
type Restored struct {
	Node, Cluster string // of the new cluster
	From          string // the node that the backup is of
	Begun         time.Time
	Files         int
	Bytes         int64
	Damaged       []string // segments that were damaged or missing when the backup was made
}

// restore is one on its way.
type restore struct {
	fs       vfs.FS
	from, to string
	node     nodeFile
	manifest *backupManifest
}

// Restore makes of a backup the data directory of a new cluster with one node, called
// nodeID. The directory is to be new or empty; nothing stays in it after an error. The
// backup is only read, and each file is compared with its checksum. Errors match
// ErrBackup, ErrNotEmpty, ErrFormat, ErrLocked, or are those of the disk.
func Restore(fsys vfs.FS, from, dir, nodeID string) (Restored, error) {
	var out Restored
	m, err := readManifest(fsys, from)
	if err != nil {
		return out, err
	}
	if err := vacant(fsys, dir); err != nil {
		return out, err
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return out, fmt.Errorf("data directory: %w", err)
	}
	lock, err := fsys.Lock(path.Join(dir, lockFileName))
	if errors.Is(err, vfs.ErrLocked) {
		return out, fmt.Errorf("%s: %w", dir, ErrLocked)
	} else if err != nil {
		return out, fmt.Errorf("data directory: %w", err)
	}
	r := &restore{fs: fsys, from: from, to: dir, manifest: m, node: nodeFile{Format: FormatVersion, Node: nodeID, Incarnation: newIncarnation()}}
	r.node.found()
	if err := r.run(); err != nil {
		return out, errors.Join(err, lock.Close(), clearDir(fsys, dir))
	}
	out = Restored{Node: nodeID, Cluster: r.node.Cluster, From: m.Node, Begun: m.Begun, Files: len(m.Files), Damaged: m.Damaged}
	for _, f := range m.Files {
		out.Bytes += f.Size
	}
	return out, lock.Close()
}

// vacant returns an error if there is anything in a directory.
func vacant(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, name := range names {
		if name != lockFileName {
			return fmt.Errorf("%s: %w: %s is in it", dir, ErrNotEmpty, name)
		}
	}
	return nil
}

// run does it. The node file comes last: a directory without it is not started on.
func (r *restore) run() error {
	dirs := map[string]bool{}
	for _, f := range r.manifest.Files {
		dir := path.Join(r.to, path.Dir(f.Name))
		if !dirs[dir] {
			if err := r.fs.MkdirAll(dir); err != nil {
				return fmt.Errorf("data directory: %w", err)
			}
			dirs[dir] = true
		}
		if err := r.file(f); err != nil {
			return err
		}
	}
	for dir := range dirs {
		if err := r.fs.SyncDir(dir); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
	}
	w, err := wal.Open(r.fs, path.Join(r.to, walDir), wal.Options{MustExist: true})
	if err != nil {
		return r.unfit(err)
	}
	if err := errors.Join(r.isolate(w), w.Close()); err != nil {
		return err
	}
	r.node.Used = true
	return writeNodeFile(r.fs, r.to, r.node)
}

// file copies a file and compares it with its checksum.
func (r *restore) file(f backupFile) error {
	name := path.Join(r.from, f.Name)
	in, err := r.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", ErrBackup, name)
	} else if err != nil {
		return err
	}
	out, err := r.fs.Create(path.Join(r.to, f.Name))
	if err != nil {
		return errors.Join(fmt.Errorf("data directory: %w", err), in.Close())
	}
	sum := sha256.New()
	size, err := copyFrom(in, out, sum, nil)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close(), in.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	if size != f.Size || hex.EncodeToString(sum.Sum(nil)) != f.Sum {
		return fmt.Errorf("%w: %s is damaged: its checksum is not that of the manifest", ErrBackup, name)
	}
	return nil
}

// unfit says that what is in a backup does not go together.
func (r *restore) unfit(err error) error {
	for _, damage := range []error{wal.ErrCorrupt, wal.ErrMissing, wal.ErrVersion, raftgroup.ErrCorrupt, checkpoint.ErrCorrupt, checkpoint.ErrNone, checkpoint.ErrVersion} {
		if errors.Is(err, damage) {
			return fmt.Errorf("%s: %w: %w", r.from, ErrBackup, err)
		}
	}
	return err
}

// isolate makes the node the only member of both groups.
func (r *restore) isolate(w *wal.WAL) error {
	_, _, err := metasvc.Isolate(r.fs, path.Join(r.to, catalogDir), w.Group(metasvc.CatalogGroup), r.node.raftID())
	if err != nil {
		return r.unfit(err)
	}
	store, err := checkpoint.Open(r.fs, path.Join(r.to, placementDir, "checkpoints"))
	if err != nil {
		return r.unfit(err)
	}
	meta, payload, err := store.Latest()
	if err != nil {
		return r.unfit(err)
	}
	meta.Configuration = raftgroup.SoleConfiguration(r.node.raftID())
	err = store.Write(meta, func(w io.Writer) error {
		_, err := io.Copy(w, payload)
		return err
	})
	if err = errors.Join(err, payload.Close()); err != nil {
		return r.unfit(err)
	}
	last, _, _, err := raftgroup.End(w.Group(durablePlacement), meta)
	for _, g := range r.manifest.Groups {
		if err == nil && g.Group == durablePlacement && (g.Checkpoint != meta.Index || g.Last != last) {
			err = fmt.Errorf("%w: checkpoint %d and log to %d, not %d and %d", raftgroup.ErrCorrupt, meta.Index, last, g.Checkpoint, g.Last)
		}
	}
	return r.unfit(err)
}
