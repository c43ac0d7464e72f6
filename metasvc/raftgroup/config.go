package raftgroup

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/wal"
)

// Config is what a group is made of.
type Config struct {
	Group       *wal.Group        // log and stable store
	NodeID      string            // of this node; never used again with an empty disk
	Checkpoints *checkpoint.Store // of this group
	Machine     Machine

	// Restored is the index of the checkpoint that Machine was restored from
	// before Open, 0 for none. It must be the newest one of Checkpoints.
	Restored uint64

	// Bootstrap lists the first members, for a group that has nothing stored
	// yet. It must be the same on all of them. Nil waits to be added by a
	// leader.
	Bootstrap []Server

	// Transport makes the transport. It is called again when the group has to
	// be restarted; the group closes what it got. Nil: this node is the only
	// member, and no socket is opened.
	Transport func() (raft.Transport, error)

	// Watch is called when the leadership changes, one call after the other. It
	// must return soon and must not call Close. May be nil.
	Watch func(Leadership)

	// OnLease is called when [Group.Lease] holds again after it had lapsed. It must
	// not block. May be nil.
	OnLease func()

	// Mono is the clock of Lease: nanoseconds that never go back, since whenever;
	// default since Open.
	Mono func() int64

	// OnFailure is called when the group can not go on: an error of a restart.
	// May be nil.
	OnFailure func(error)

	Logger zerolog.Logger
	Timing Timing

	// KeepBytes is how much log stays before a checkpoint; default 64 MiB.
	KeepBytes int64

	// KeepPeers is the same while there are other members, so that one that was away
	// for a moment needs no checkpoint; default 64 MiB, and never less than KeepBytes.
	KeepPeers int64

	// MaxAppendEntries bounds a group commit, a message to a follower, and a
	// batch of Apply, in entries; default 16.
	MaxAppendEntries int
}

// Timing are the timeouts of Raft. The zero value is right for a LAN.
type Timing struct {
	Heartbeat time.Duration // without contact before an election; default 1 s
	Lease     time.Duration // without contact to a majority before stepping down; default 750 ms
	Commit    time.Duration // idle time before followers learn the last commit; default 150 ms
}

func (c Config) withDefaults() (Config, error) {
	if c.Group == nil || c.Checkpoints == nil || c.Machine == nil || c.NodeID == "" {
		return c, errors.New("raftgroup: Group, Checkpoints, Machine and NodeID are required")
	}
	if c.KeepBytes == 0 {
		c.KeepBytes = 64 << 20
	}
	if c.KeepPeers == 0 {
		c.KeepPeers = 64 << 20
	}
	c.KeepPeers = max(c.KeepPeers, c.KeepBytes)
	if c.MaxAppendEntries == 0 {
		c.MaxAppendEntries = 16
	}
	t := &c.Timing
	if t.Heartbeat == 0 {
		t.Heartbeat = time.Second
	}
	if t.Lease == 0 {
		t.Lease = t.Heartbeat * 3 / 4
	}
	if t.Commit == 0 {
		t.Commit = 150 * time.Millisecond
	}
	if t.Lease > t.Heartbeat {
		return c, fmt.Errorf("raftgroup: lease %v is longer than heartbeat %v", t.Lease, t.Heartbeat)
	}
	return c, nil
}

// raftConfig translates.
func (g *Group) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(g.cfg.NodeID)
	c.HeartbeatTimeout = g.cfg.Timing.Heartbeat
	c.ElectionTimeout = g.cfg.Timing.Heartbeat
	c.LeaderLeaseTimeout = g.cfg.Timing.Lease
	c.CommitTimeout = g.cfg.Timing.Commit
	c.MaxAppendEntries = g.cfg.MaxAppendEntries
	c.BatchApplyCh = true // else one proposer gets one entry per sync
	c.NotifyCh = g.notify
	c.Logger = g.logger
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true

	// The checkpoints are ours.
	c.NoSnapshotRestoreOnStart = true
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = 24 * time.Hour
	return c
}
