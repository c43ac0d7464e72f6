package placement

import (
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"
)

// disk watches how much room the volume of a durable group has. Publishers are
// refused while it is low, so that seals, settlements, checkpoints and keyed
// state, which free space or are small, find some. The zero disk is never low.
type disk struct {
	mu     sync.Mutex // one turn at a time
	free   func() (int64, error)
	floor  int64
	logger zerolog.Logger
	tell   func(low bool, free, floor int64) // may be nil
	// cramped says that a file could not be made or written for want of room, however
	// much is said to be free: there are quotas. nil: never.
	cramped func() bool
	leads   func() bool // only who leads refuses publishes; nil: always
	low     atomic.Bool
	deaf    atomic.Bool  // free has failed
	room    atomic.Int64 // free bytes at the last look
	seen    uint64       // bytes that the log had at the last look of wrote
}

// lookBytes is how much may be written between two looks.
const lookBytes = 8 << 20

// open begins to watch the volume of a group's directory. floor is in bytes.
func (d *disk) open(cfg Config, floor int64) {
	d.logger, d.floor, d.tell = cfg.Logger, floor, cfg.OnDisk
	d.free = func() (int64, error) { return cfg.FS.Free(cfg.Dir) }
	if size, err := cfg.FS.Capacity(cfg.Dir); err == nil {
		d.floor = min(floor, size/4)
	}
	d.look()
}

// wrote looks at the volume if the log, which has had so many bytes by now, has
// grown enough for that. One goroutine.
func (d *disk) wrote(bytes uint64) {
	if bytes-d.seen >= lookBytes {
		d.seen = bytes
		d.look()
	}
}

// look looks at the volume: once a second, and after each seal. Any goroutine.
func (d *disk) look() {
	if d.free == nil {
		return
	}
	free, err := d.free()
	if err != nil {
		if !d.deaf.Swap(true) {
			d.logger.Warn().Err(err).Msg("how much room the disk has is not known")
		}
		return
	}
	d.deaf.Store(false)
	d.room.Store(free)
	d.mu.Lock()
	defer d.mu.Unlock()
	cramped := d.cramped != nil && d.cramped()
	switch {
	case free < d.floor || cramped:
		if !d.low.Load() {
			d.notify(true, free)
			d.low.Store(true)
			d.complain(free, cramped)
		}
	case free-d.floor >= d.floor/8: // not at every file that comes and goes
		if d.low.Swap(false) {
			d.notify(false, free)
			d.logger.Info().Int64("free", free).Msg("the disk has room again")
		}
	}
}

// complain says what a low disk means. Of a node that does not lead it is for the leader
// to decide, by how many there are.
func (d *disk) complain(free int64, cramped bool) {
	e, means := d.logger.Error(), "publishes are refused"
	if d.leads != nil && !d.leads() {
		e, means = d.logger.Warn(), "this node would refuse publishes if it led"
	}
	e.Int64("free", free).Int64("floor", d.floor).Bool("cramped", cramped).Msg("the disk is low: " + means)
}

// led says so again of a node that leads from now on. It does not wait for a look.
func (d *disk) led() {
	if d.low.Load() {
		d.complain(d.room.Load(), false)
	}
}

func (d *disk) notify(low bool, free int64) {
	if d.tell != nil {
		d.tell(low, free, d.floor)
	}
}

// Disk returns how many bytes of the volume were free at the last look, and below
// how many publishes are refused; zeros if it is not known.
func (g *Group) Disk() (free, floor int64) { return g.disk.room.Load(), g.disk.floor }
