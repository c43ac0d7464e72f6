package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// ErrAlone: a node is the only one of its cluster already.
var ErrAlone = errors.New("the node is the only one of its cluster already")

// Isolation is what RecoverAlone has done.
type Isolation struct {
	Recovery        // with accept: of what was damaged
	Node     string // that goes on alone
	Cluster  string // its new id
	Former   string // that of the cluster it belonged to
	Others   []string
	Catalog  uint64 // last entry of the log of the catalog that the node has
	Messages uint64 // likewise of the messages
	Lacks    []Finding
}

// RecoverAlone makes the stopped member of a cluster whose other nodes are lost the only
// node of a new one, with all that its log holds. What only others had is
// lost. With accept, damage is given up first as by Recover. It may be
// repeated after an error or a crash; the node does not start to serve in between. Errors match ErrAlone, ErrLocked,
// ErrIncomplete, or are those of damage, about which Recover tells more.
func RecoverAlone(fsys vfs.FS, dir string, accept bool, now time.Time) (Isolation, error) {
	var out Isolation
	if _, err := fsys.List(dir); err != nil {
		return out, fmt.Errorf("data directory: %w", err)
	}
	lock, err := fsys.Lock(path.Join(dir, lockFileName))
	if errors.Is(err, vfs.ErrLocked) {
		return out, fmt.Errorf("%s: %w", dir, ErrLocked)
	} else if err != nil {
		return out, fmt.Errorf("data directory: %w", err)
	}
	if accept {
		r := &recovery{fs: fsys, dir: dir, work: path.Join(dir, scratchDir), now: now}
		if err = r.look(); err == nil && len(r.out.Damage) > 0 {
			err = r.repair()
		}
		out.Recovery = r.out
	}
	if err == nil {
		err = out.isolate(fsys, dir)
	}
	switch {
	case err == nil:
	case isDamage(err) && !accept:
		err = fmt.Errorf("%s: %w; --accept-loss together with --alone gives up what is damaged, and tells what that is", dir, err)
	default:
		err = fmt.Errorf("%s: %w", dir, err)
	}
	return out, errors.Join(err, lock.Close())
}

func (out *Isolation) isolate(fsys vfs.FS, dir string) error {
	f, err := fsys.Open(path.Join(dir, nodeFileName))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is missing", ErrIncomplete, nodeFileName)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	file, err := identify(fsys, dir, "", false)
	if err != nil {
		return err
	}
	if file.Cluster == "" {
		return fmt.Errorf("%w: it has never been let into a cluster", ErrIncomplete)
	}
	w, err := wal.Open(fsys, path.Join(dir, walDir), wal.Options{FileSize: logUnit(fsys, dir), MustExist: true})
	if err != nil {
		return err
	}
	return errors.Join(out.rewrite(fsys, dir, file, w), w.Close())
}

// rewrite makes the changes. The identity is the first: with that of the new cluster
// and the members of the old one nothing starts to serve.
func (out *Isolation) rewrite(fsys vfs.FS, dir string, file nodeFile, w *wal.WAL) error {
	in, err := placement.Inspect(fsys, path.Join(dir, placementDir), path.Join(dir, placementDir, "segments"))
	if err != nil {
		return err
	}
	data, err := newestCheckpoint(fsys, path.Join(dir, placementDir, "checkpoints"))
	if err != nil {
		return err
	}
	meta, err := newestCheckpoint(fsys, path.Join(dir, catalogDir))
	if err != nil {
		return err
	}
	if err := out.look(w, file, map[uint32]checkpoint.Meta{metasvc.CatalogGroup: meta, durablePlacement: data}); err != nil {
		return err
	}
	out.Node, out.Former = file.Node, file.Cluster
	file.Cluster, file.Incarnation = "", ""
	file.found()
	file.Used, out.Cluster = true, file.Cluster
	if err := writeNodeFile(fsys, dir, file); err != nil {
		return err
	}
	state, last, err := metasvc.Isolate(fsys, path.Join(dir, catalogDir), w.Group(metasvc.CatalogGroup), file.raftID())
	if err != nil {
		return err
	}
	out.Catalog = last
	out.lacks(dir, in.Segments, state)
	if out.Messages, _, _, err = raftgroup.End(w.Group(durablePlacement), data); err != nil {
		return err
	}
	if _, err := raftgroup.Isolate(w.Group(durablePlacement), data, file.raftID()); err != nil {
		return err
	}
	return cluster.Forget(fsys, dir)
}

// look finds out who the others are, and that both groups can go on from what is here.
func (out *Isolation) look(w *wal.WAL, file nodeFile, newest map[uint32]checkpoint.Meta) error {
	for _, group := range []uint32{metasvc.CatalogGroup, durablePlacement} {
		g := w.Group(group)
		last, _, _, err := raftgroup.End(g, newest[group])
		if err != nil {
			return err
		}
		if last == 0 {
			return fmt.Errorf("%w: it has nothing of the %s", ErrIncomplete, groupNames[group])
		}
		names, err := raftgroup.Members(g, newest[group])
		if err != nil {
			return err
		}
		for _, name := range names {
			if name != file.raftID() && !slices.Contains(out.Others, name) {
				out.Others = append(out.Others, name)
			}
		}
	}
	if len(out.Others) == 0 {
		return ErrAlone
	}
	return nil
}

// lacks notes which segments are missing or damaged here: nobody else is asked for them any more.
func (out *Isolation) lacks(dir string, bad []placement.BadSegment, names *catalog.State) {
	r := &recovery{dir: dir, work: dir}
	for _, s := range bad {
		r.found(s.File, s.Err.Error(), lostIn(s, names))
	}
	out.Lacks = r.out.Damage
}

// newestCheckpoint returns the newest checkpoint of a stopped group that is whole.
func newestCheckpoint(fsys vfs.FS, dir string) (checkpoint.Meta, error) {
	store, err := checkpoint.Open(fsys, dir)
	if err != nil {
		return checkpoint.Meta{}, err
	}
	meta, payload, err := store.Latest()
	if errors.Is(err, checkpoint.ErrNone) {
		return checkpoint.Meta{}, nil
	}
	if err != nil {
		return meta, err
	}
	return meta, payload.Close()
}
