package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/keyfile"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// scratchDir holds the copies that Recover tries its work on.
const scratchDir = "recover.tmp"

// ErrDamaged: Recover found damage.
var ErrDamaged = errors.New("the data directory is damaged")

// ErrMember: a member of a cluster is not to go on with less than it had.
var ErrMember = errors.New("the node is a member of a cluster, and what it has lost the others have: " +
	"`trivium cluster remove NODE` at one of them, then start it with an empty data directory and --join (cluster.rejoin auto does that for a damaged log or checkpoint)")

// advise adds to an error of damage what to do about it.
func (n *Node) advise(err error) error {
	fsys := n.cfg.FS
	if fsys == nil {
		fsys = vfs.OS()
	}
	switch {
	case !isDamage(err):
		return err
	case len(cluster.Others(fsys, n.cfg.DataDir)) > 0:
		return fmt.Errorf("%w; %w", err, ErrMember)
	}
	return fmt.Errorf("%w; `trivium recover --check` tells what is lost", err)
}

// isDamage reports whether an error is about what is on the disk.
func isDamage(err error) bool {
	return rotten(err) || errors.Is(err, wal.ErrMissing) || errors.Is(err, ErrIncomplete)
}

// rotten reports whether an error says that what had been written to the log or to a
// checkpoint is not there any more. A log that is missing as a whole is no such: its disk
// may not be mounted.
func rotten(err error) bool {
	for _, damage := range []error{wal.ErrCorrupt, raftgroup.ErrCorrupt, checkpoint.ErrCorrupt, keyfile.ErrDamaged} {
		if errors.Is(err, damage) {
			return true
		}
	}
	return false
}

// Recovery is what Recover found, and did.
type Recovery struct {
	Damage []Finding
	Aside  string // directory with what was taken out; "" = nothing was changed
}

// Finding is one damaged or missing thing.
type Finding struct {
	File string `json:"file"`
	What string `json:"what"`
	Lost string `json:"lost"` // "" = nothing
}

// recovery is the state of Recover.
type recovery struct {
	fs   vfs.FS
	dir  string // of the node
	work string // where the log and the checkpoints are worked on
	node string
	now  time.Time
	out  Recovery
	wal  *wal.WAL
}

// Recover looks for damage in the data directory of a stopped single node. With
// accept it then makes the directory one that a node starts on: what is whole
// stays, what is damaged is moved below lost+TIME beside a report. Without, it
// changes nothing. The error matches ErrDamaged if there is damage and accept is
// false, ErrMember if it is true and there are other nodes, ErrLocked if the node runs. nodeID names the node if its file is lost.
func Recover(fsys vfs.FS, dir, nodeID string, accept bool, now time.Time) (Recovery, error) {
	r := &recovery{fs: fsys, dir: dir, work: path.Join(dir, scratchDir), node: nodeID, now: now}
	if _, err := fsys.List(dir); err != nil {
		return r.out, fmt.Errorf("data directory: %w", err)
	}
	lock, err := fsys.Lock(path.Join(dir, lockFileName))
	if errors.Is(err, vfs.ErrLocked) {
		return r.out, fmt.Errorf("%s: %w", dir, ErrLocked)
	} else if err != nil {
		return r.out, fmt.Errorf("data directory: %w", err)
	}
	err = r.look()
	switch {
	case err != nil || len(r.out.Damage) == 0:
	case accept && len(cluster.Others(fsys, dir)) > 0:
		err = fmt.Errorf("%s: %w", dir, ErrMember)
	case !accept:
		err = fmt.Errorf("%s: %w", dir, ErrDamaged)
	default:
		err = r.repair()
	}
	return r.out, errors.Join(err, lock.Close())
}

func (r *recovery) found(file, what, lost string) {
	r.out.Damage = append(r.out.Damage, Finding{strings.TrimPrefix(strings.ReplaceAll(file, r.work, r.dir), r.dir+"/"), strings.ReplaceAll(what, r.work, r.dir), lost})
}

// look does on copies what repair does, and so knows what is to be lost.
func (r *recovery) look() error {
	if err := removeAll(r.fs, r.work); err != nil {
		return err
	}
	for _, sub := range r.parts() {
		if err := copyDir(r.fs, path.Join(r.dir, sub), path.Join(r.work, sub)); err != nil {
			return fmt.Errorf("copy %s: %w", sub, err)
		}
	}
	err := r.run()
	return errors.Join(err, removeAll(r.fs, r.work))
}

// parts are the directories that are worked on.
func (r *recovery) parts() []string {
	return []string{walDir, catalogDir, path.Join(placementDir, "checkpoints"), path.Join(placementDir, "keys")}
}

// repair moves all there is aside that repairing may touch, as copies, and then
// works on the originals.
func (r *recovery) repair() error {
	found := r.out.Damage
	r.out.Aside = path.Join(r.dir, "lost+"+r.now.UTC().Format("20060102T150405Z"))
	for _, sub := range r.parts() {
		if err := copyDir(r.fs, path.Join(r.dir, sub), path.Join(r.out.Aside, sub)); err != nil {
			return fmt.Errorf("keep %s: %w", sub, err)
		}
	}
	if err := r.report(found); err != nil {
		return err
	}
	r.work, r.out.Damage = r.dir, nil
	err := r.run()
	r.out.Damage = found
	return errors.Join(err, r.clean())
}

// run mends what there is in r.work. The checkpoints are read before the log: what
// of it is of use depends on them.
func (r *recovery) run() error {
	if err := r.identity(); err != nil {
		return err
	}
	meta, err := r.catalog()
	if err != nil {
		return err
	}
	dir := path.Join(r.work, placementDir)
	in, err := placement.Inspect(r.fs, dir, path.Join(r.dir, placementDir, "segments"))
	if err != nil {
		return err
	}
	if err := r.log(map[uint32]uint64{metasvc.CatalogGroup: meta.index, durablePlacement: in.Index}); err != nil {
		return err
	}
	err = r.join(metasvc.CatalogGroup, meta.index, path.Join(r.work, catalogDir), meta.aside)
	if err == nil {
		err = r.join(durablePlacement, in.Index, dir, in.Aside)
	}
	if err == nil {
		err = r.segments(in.Segments, meta.state)
	}
	return errors.Join(err, r.wal.Close())
}

// identity looks after the file that says whose directory it is.
func (r *recovery) identity() error {
	f, err := r.fs.Open(path.Join(r.dir, nodeFileName))
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		_, err = identify(r.fs, r.dir, "", false)
		if err == nil || errors.Is(err, ErrFormat) {
			return err
		}
	}
	r.found(path.Join(r.dir, nodeFileName), err.Error(), "")
	if r.work != r.dir {
		return nil
	}
	n := nodeFile{Format: FormatVersion, Node: r.node, Cluster: newClusterID(), Secret: newSecret(), Used: true}
	return writeNodeFile(r.fs, r.dir, n)
}

// log makes of a damaged write-ahead log one of what goes on from the checkpoints,
// whose indexes are in base.
func (r *recovery) log(base map[uint32]uint64) (err error) {
	dir := path.Join(r.work, walDir)
	opts := wal.Options{FileSize: logUnit(r.fs, r.dir)}
	if r.wal, err = wal.Open(r.fs, dir, wal.Options{FileSize: opts.FileSize, MustExist: true}); err == nil {
		return nil
	}
	switch {
	case errors.Is(err, wal.ErrMissing):
		r.found(dir, "there is no write-ahead log", "everything since the last checkpoints")
	case errors.Is(err, wal.ErrCorrupt):
		loss, serr := wal.Salvage(r.fs, dir, base, opts)
		if serr != nil {
			return serr
		}
		var lost []string
		for _, g := range loss.Groups {
			lost = append(lost, fmt.Sprintf("%s: entries %d to %d of the log", groupNames[g.Group], g.Last+1, g.Seen))
		}
		if len(lost) == 0 {
			lost = append(lost, "what was in the damaged place, if anything")
		}
		r.found(loss.File, fmt.Sprintf("damaged at %d: %v", loss.Offset, err), strings.Join(lost, "; "))
	default:
		return err
	}
	r.wal, err = wal.Open(r.fs, dir, opts)
	return err
}

// groupNames says what the Raft groups are.
var groupNames = map[uint32]string{metasvc.CatalogGroup: "catalog (topics, queues, bindings, users)", durablePlacement: "messages and sessions"}

// metadata is what the checkpoints of the catalog have.
type metadata struct {
	state *catalog.State
	index uint64  // 0 = there is no whole one
	aside []error // damaged ones, which were set aside
}

// catalog reads the checkpoints of the metadata.
func (r *recovery) catalog() (metadata, error) {
	out := metadata{state: &catalog.State{}}
	store, err := checkpoint.Open(r.fs, path.Join(r.work, catalogDir))
	if err != nil {
		return out, err
	}
	meta, payload, err := store.Latest()
	switch {
	case errors.Is(err, checkpoint.ErrNone) || errors.Is(err, checkpoint.ErrCorrupt):
	case err != nil:
		return out, err
	default:
		out.index = meta.Index
		out.state, err = catalog.Read(payload)
		if err = errors.Join(err, payload.Close()); err != nil {
			return out, err
		}
	}
	out.aside = store.Damage()
	return out, nil
}

// join looks whether the log of a group goes on from its checkpoint, and makes
// it so.
func (r *recovery) join(group uint32, index uint64, dir string, aside []error) error {
	g, name := r.wal.Group(group), groupNames[group]
	first, err := g.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.LastIndex()
	if err != nil {
		return err
	}
	broken := first > index+1 || first == 0 && index == 0 && len(aside) > 0
	for _, a := range aside {
		lost := ""
		if broken {
			lost = name + ": everything"
		}
		r.found(dir, a.Error(), lost)
	}
	switch {
	case broken:
		if len(aside) == 0 {
			r.found(dir, fmt.Sprintf("the newest checkpoint is at %d, the log begins at %d", index, first), name+": everything")
		}
		if err := g.Drop(); err != nil {
			return err
		}
		for _, sub := range []string{"", "checkpoints", "keys", "segments"} {
			if group == metasvc.CatalogGroup && sub != "" || group != metasvc.CatalogGroup && sub == "" {
				continue
			}
			if err := r.takeOut(path.Join(dir, sub)); err != nil {
				return err
			}
		}
	case last > 0 && last < index:
		r.found(path.Join(r.dir, walDir), fmt.Sprintf("the log of %s ends at %d, before its checkpoint at %d: newer files are missing", name, last, index),
			fmt.Sprintf("%s: entries from %d on", name, index+1))
		return g.DeleteRange(first, last)
	case last == 0 && index == 0 && len(r.out.Damage) > 0:
		lost := name + ": everything"
		if group == metasvc.CatalogGroup {
			lost += ", and with it all messages"
		}
		r.found(dir, "there is no checkpoint, and nothing in the log", lost)
	case last == 0 && index > 0 && len(r.out.Damage) > 0:
		r.found(path.Join(r.dir, walDir), fmt.Sprintf("the log of %s is empty, its checkpoint is at %d", name, index),
			fmt.Sprintf("%s: entries from %d on", name, index+1))
	}
	return nil
}

// takeOut moves a directory's files aside.
func (r *recovery) takeOut(dir string) error {
	if r.work != r.dir {
		return removeAll(r.fs, dir)
	}
	to := path.Join(r.out.Aside, strings.TrimPrefix(dir, r.dir))
	names, err := r.fs.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = r.fs.MkdirAll(to)
	}
	for _, name := range names {
		if err == nil {
			err = r.fs.Rename(path.Join(dir, name), path.Join(to, name))
		}
	}
	return errors.Join(err, r.fs.SyncDir(dir), r.fs.SyncDir(to))
}

// segments tells what damaged segments cost, and takes out what is of no use.
func (r *recovery) segments(bad []placement.BadSegment, names *catalog.State) error {
	for _, s := range bad {
		r.found(s.File, s.Err.Error(), lostIn(s, names))
		if s.Gone && r.work == r.dir && !errors.Is(s.Err, fs.ErrNotExist) {
			to := path.Join(r.out.Aside, placementDir, "segments")
			if err := errors.Join(r.fs.MkdirAll(to), r.fs.Rename(s.File, path.Join(to, path.Base(s.File))), r.fs.SyncDir(to), r.fs.SyncDir(path.Dir(s.File))); err != nil {
				return err
			}
		}
	}
	return nil
}

// lostIn says what is lost with a segment.
func lostIn(s placement.BadSegment, names *catalog.State) string {
	var lost []string
	for _, l := range s.Lost {
		name := l.Topic.String()
		if t, ok := names.TopicByID(l.Topic); ok {
			name = t.Tenant + " " + t.Name
		}
		lost = append(lost, fmt.Sprintf("topic %s, partition %d: of offsets %d to %d those that are not elsewhere", name, l.Partition, l.First, l.Last))
	}
	return strings.Join(lost, "; ")
}

// clean removes from the directory what is kept aside.
func (r *recovery) clean() error {
	var errs []error
	for _, sub := range r.parts() {
		dir := path.Join(r.dir, sub)
		names, err := r.fs.List(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".lost") || strings.HasSuffix(name, ".damaged") {
				errs = append(errs, r.fs.Remove(path.Join(dir, name)))
			}
		}
	}
	return errors.Join(errs...)
}
