package metasvc

import (
	"errors"
	"fmt"

	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// Export writes a checkpoint of the state as this node has applied it into a directory
// of its own, and says of what it is.
func (c *Catalog) Export(fsys vfs.FS, dir string) (checkpoint.Meta, error) {
	v := c.view.Load()
	meta, err := c.group.CheckpointMeta(v.index)
	if err != nil {
		return meta, fmt.Errorf("catalog: export: %w", err)
	}
	store, err := checkpoint.Open(fsys, dir)
	if err != nil {
		return meta, fmt.Errorf("catalog: export: %w", err)
	}
	if err := store.Write(meta, v.state.Write); err != nil {
		return meta, fmt.Errorf("catalog: export: %w", err)
	}
	return meta, nil
}

// Isolate makes a node the only member of a stopped catalog with all that its checkpoints
// and its log hold, committed or not. The catalog forgets all nodes; there is a checkpoint of
// that, so that a start knows none of old. It returns the state as it was, and the index of the
// last entry in it.
func Isolate(fsys vfs.FS, dir string, log *wal.Group, nodeID string) (*catalog.State, uint64, error) {
	state, index, err := isolate(fsys, dir, log, nodeID)
	if err != nil {
		err = fmt.Errorf("catalog: %w", err)
	}
	return state, index, err
}

func isolate(fsys vfs.FS, dir string, log *wal.Group, nodeID string) (*catalog.State, uint64, error) {
	store, err := checkpoint.Open(fsys, dir)
	if err != nil {
		return nil, 0, err
	}
	state, newest, err := readNewest(store)
	if err != nil {
		return nil, 0, err
	}
	last, _, _, err := raftgroup.End(log, newest)
	if err != nil {
		return nil, 0, err
	}
	err = raftgroup.Commands(log, newest.Index, func(e raftgroup.Entry) error {
		cmd, err := catalog.DecodeCommand(e.Data)
		if err != nil {
			return fmt.Errorf("entry %d: %w", e.Index, err)
		}
		state, _, _ = state.Apply(cmd.Ops) // one that was refused has changed nothing
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	forget := catalog.Command{Ops: []catalog.Op{catalog.ForgetNodes{}}}
	meta, err := raftgroup.Isolate(log, newest, nodeID, forget.Append(nil))
	if err != nil {
		return nil, 0, err
	}
	alone, _, err := state.Apply(forget.Ops)
	if err != nil {
		return nil, 0, err
	}
	return state, last, store.Write(meta, alone.Write)
}

// readNewest reads the newest checkpoint that is whole; without any the state is empty.
func readNewest(store *checkpoint.Store) (*catalog.State, checkpoint.Meta, error) {
	meta, payload, err := store.Latest()
	if errors.Is(err, checkpoint.ErrNone) {
		return &catalog.State{}, checkpoint.Meta{}, nil
	}
	if err != nil {
		return nil, meta, err
	}
	state, err := catalog.Read(payload)
	return state, meta, errors.Join(err, payload.Close())
}
