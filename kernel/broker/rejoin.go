package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/storage/vfs"
)

const (
	// rejoinName is the file of a node that joins its cluster again because of damage,
	// until it is in; then it lies beside what was set aside.
	rejoinName = "rejoin.json"
	// asidePrefix begins the names of directories with what was damaged.
	asidePrefix = "damaged-"
	// maxRejoin bounds the file in bytes.
	maxRejoin = 64 << 10
	// maxFound bounds the text about the damage in it, in bytes.
	maxFound = 8 << 10
)

// ErrRejoined: a member of a cluster joins it again because of damage once only, until
// somebody has looked at what was set aside then.
var ErrRejoined = errors.New("the node has joined its cluster again because of damage before, and what was damaged then is still there")

// rejoin is how a member of a cluster comes back whose log or checkpoints are damaged: as
// another node under the same number, which begins empty. Nothing is touched before the
// others have let it in, and what it was has left. The file is written first, so that a
// node which stops in between asks under the same name again.
type rejoin struct {
	Raft        string         `json:"raft"`        // that it joins with
	Incarnation string         `json:"incarnation"` // likewise
	Former      cluster.Former `json:"former"`      // what it was
	Aside       string         `json:"aside"`       // directory that gets what is damaged
	Found       string         `json:"found"`       // damage
}

// openReplicas opens all that the node holds. A member of a cluster that finds damage
// joins it again, if that is wanted.
func (n *Node) openReplicas(ctx context.Context) error {
	fsys := n.cfg.FS
	if fsys == nil {
		fsys = vfs.OS()
	}
	err := n.openDir(ctx, fsys)
	if err == nil || !n.rejoins(fsys, err) {
		return err
	}
	if perr := n.planRejoin(fsys, err); perr != nil {
		return errors.Join(err, perr)
	}
	if cerr := n.replicas.close(); cerr != nil {
		n.log.Warn().Err(cerr).Msg("the damaged data were not closed in good order")
	}
	n.replicas, n.file = replicas{}, nodeFile{}
	n.turn(func(w *lead) { *w, n.leader = lead{}, "" })
	return n.openDir(ctx, fsys)
}

// rejoins reports whether a member with such an error is to join its cluster again.
func (n *Node) rejoins(fsys vfs.FS, err error) bool {
	return n.cfg.Cluster.Rejoin && n.clustered() && rotten(err) && n.file.Cluster != "" && n.Failed() == nil &&
		len(cluster.Addresses(fsys, n.cfg.DataDir, n.file.Cluster)) > 0
}

// planRejoin writes down that the node is to join again.
func (n *Node) planRejoin(fsys vfs.FS, found error) error {
	dir, was := n.cfg.DataDir, n.file
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, asidePrefix) {
			return fmt.Errorf("%w: find out whether the disk is good, remove %s, and start again", ErrRejoined, path.Join(dir, name))
		}
	}
	text := found.Error()
	r := rejoin{
		Incarnation: newIncarnation(), Found: text[:min(len(text), maxFound)], Aside: fmt.Sprintf("%s%d", asidePrefix, n.now().Unix()),
		Former: cluster.Former{Raft: was.raftID(), Incarnation: was.Incarnation, Cluster: was.Cluster},
	}
	r.Raft = cluster.RaftName(was.Node, r.Incarnation)
	data, err := json.Marshal(r)
	if err == nil {
		err = vfs.ReplaceFile(fsys, path.Join(dir, rejoinName), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", rejoinName, err)
	}
	return nil
}

// resume reads whether the node joins again, and then makes it the new one; the directory
// is claimed.
func (n *Node) resume(fsys vfs.FS, dir string) error {
	if !n.clustered() {
		return nil
	}
	r, err := readRejoin(fsys, dir)
	switch {
	case err != nil || r == nil:
		return err
	case r.Raft == n.file.raftID(): // it stopped when all but this was done
		return r.shelve(fsys, dir)
	case r.Former.Raft != n.file.raftID() || r.Former.Incarnation != n.file.Incarnation || r.Former.Cluster != n.file.Cluster:
		n.log.Warn().Str("file", rejoinName).Msg("a file of another node is removed")
		return errors.Join(fsys.Remove(path.Join(dir, rejoinName)), fsys.SyncDir(dir))
	case !n.cfg.Cluster.Rejoin:
		return nil
	}
	n.log.Warn().Str("damage", r.Found).Str("was", r.Former.Raft).Str("is", r.Raft).Msg("the data of this node are damaged: it asks the other nodes " +
		"to go on without what it was, and to let it in as a new one, which gets all from them; nothing is changed here before")
	n.again = r
	n.file = nodeFile{Format: FormatVersion, Node: n.file.Node, Raft: r.Raft, Incarnation: r.Incarnation}
	return nil
}

// readRejoin returns nil if there is no file.
func readRejoin(fsys vfs.FS, dir string) (*rejoin, error) {
	f, err := fsys.Open(path.Join(dir, rejoinName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxRejoin))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	r := &rejoin{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", rejoinName, err)
	}
	if !strings.HasPrefix(r.Aside, asidePrefix) || strings.ContainsAny(r.Aside, `/\`) {
		return nil, fmt.Errorf("%s: %q is no place for what is damaged", rejoinName, r.Aside)
	}
	return r, nil
}

// former is the member that the node was; nil if r is.
func (r *rejoin) former() *cluster.Former {
	if r == nil {
		return nil
	}
	return &r.Former
}

// settle makes the directory that of the new node, once that is let in. It may be
// repeated after a crash: the node file is replaced when all that it is not for has gone.
func (r *rejoin) settle(fsys vfs.FS, dir string, file nodeFile) error {
	aside := path.Join(dir, r.Aside)
	if err := fsys.MkdirAll(aside); err != nil {
		return fmt.Errorf("set the damaged data aside: %w", err)
	}
	if err := copyFile(fsys, path.Join(dir, nodeFileName), path.Join(aside, nodeFileName)); err != nil {
		return fmt.Errorf("set the damaged data aside: %w", err)
	}
	for _, sub := range []string{walDir, catalogDir, placementDir} { // the log first: without it nothing starts
		if err := moveTree(fsys, path.Join(dir, sub), path.Join(aside, sub)); err != nil {
			return fmt.Errorf("set the damaged data aside: %w", err)
		}
	}
	if err := fsys.SyncDir(aside); err != nil {
		return err
	}
	if err := writeNodeFile(fsys, dir, file); err != nil {
		return err
	}
	return r.shelve(fsys, dir)
}

// shelve puts the file to what was damaged: the node has joined.
func (r *rejoin) shelve(fsys vfs.FS, dir string) error {
	aside := path.Join(dir, r.Aside)
	if err := fsys.MkdirAll(aside); err != nil { // somebody has been quick to clean up
		return err
	}
	return errors.Join(fsys.Rename(path.Join(dir, rejoinName), path.Join(aside, rejoinName)), fsys.SyncDir(aside), fsys.SyncDir(dir))
}
