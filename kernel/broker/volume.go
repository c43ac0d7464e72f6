package broker

import (
	"path"

	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// The log takes disk in files that are reserved ahead, and gives it back by
// seals. On a small volume both are smaller, so that one of each still fits
// below the floor at which publishers are refused.
const (
	maxLogUnit = 64 << 20
	minLogUnit = 32 << 20 // the largest record and its company fit
	logUnits   = 16       // of a volume
)

// logUnit returns the bytes of a file of the write-ahead log, and of log between
// two seals, on the volume of dir.
func logUnit(fsys vfs.FS, dir string) int64 {
	capacity, err := fsys.Capacity(dir)
	if err != nil {
		return maxLogUnit
	}
	return min(max(capacity/logUnits, minLogUnit), maxLogUnit)
}

// openKeyed opens the store of the keyed state. What is in it is filled in anew
// at each start, so on a full disk it is kept in memory: a node that could not
// start could not drain either.
func (n *Node) openKeyed(fsys vfs.FS, dir string, unit int64) (err error) {
	if n.kv = n.cfg.KV; n.kv != nil {
		return nil
	}
	n.ownKV = true
	free, err := fsys.Free(dir)
	if low := err == nil && free < kv.Room+unit; n.cfg.FS != nil || low {
		if low {
			n.log.Warn().Int64("free", free).Msg("the disk is low: sessions and offsets are kept in memory besides the log until the next start")
		}
		n.kv, err = kv.OpenMemory()
		return err
	}
	n.kv, err = kv.Open(path.Join(dir, kvDir), func() (int64, error) { return fsys.Free(dir) })
	return err
}
