package cluster

import (
	"context"
	"io"
	"net"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// Config is what a Node is made of.
type Config struct {
	// Identity is whose node it is. Cluster is empty until it has joined; Address is
	// set by Open, from Advertise.
	Identity Identity
	// Listener accepts connections of other nodes, without TLS of its own. The Node
	// closes it, also if Open fails.
	Listener net.Listener
	// Advertise is where others reach the listener, host:port; "" = its address.
	Advertise string
	// Seeds are addresses of nodes of the cluster.
	Seeds []string
	// Former is the member that the node was before damage, and that leaves when it joins;
	// nil = it was none, or still is it.
	Former *Former
	// TLS protects what nodes say to each other; nil is for the loopback only.
	TLS *TLS
	// FS and Dir are where peers.json is kept: the addresses of the others.
	FS  vfs.FS
	Dir string
	// Fronts are the addresses that clients are told, by listener.
	Fronts map[string]string
	// Secret is what all nodes of the cluster have in common, for those that join.
	Secret  []byte
	Version string
	// Low reports whether this node is low on disk. May be nil.
	Low func() bool
	// Slow reports whether writes to this node's log take, or took of late, longer than
	// others are to wait for. May be nil.
	Slow func() bool
	// Clock is the time by which this node counts, in milliseconds, and OnClock is told
	// that of another one, every second or so. May be nil.
	Clock   func() int64
	OnClock func(raftID string, ms int64)
	// OnRefused is told once when the others do not want this node any more: it was
	// removed, or its data directory is not what they know. It must return soon and
	// not call Close. May be nil.
	OnRefused func(*Refusal)
	Logger    zerolog.Logger
}

// Catalog is the replicated metadata: *metasvc.Catalog.
type Catalog interface {
	State() *catalog.State
	Do(ctx context.Context, ops ...catalog.Op) (catalog.Result, error)
}

// Segment is an open segment file.
type Segment interface {
	io.ReaderAt
	io.Closer
}

// Group is a Raft group of which this node has a replica.
type Group struct {
	ID   uint32
	Raft *raftgroup.Group
	// Whole reports whether the replica has all that it has applied, and the node may be
	// elected; nil = always.
	Whole func() bool
	// Segment opens a segment, of the returned size in bytes, which stays while it is
	// open; nil = there are none.
	Segment func(id uint64) (Segment, int64, error)
	// Barrier returns, while this node leads, an index behind which nothing is that has
	// been confirmed before; nil = nobody asks for it.
	Barrier func(ctx context.Context) (uint64, error)
	// HandOver passes the leadership that this node has on to another one, after what it
	// does with it has come to an end; nil = it is passed on as it is.
	HandOver func(ctx context.Context, to string) error
}

// Replicas are what a Node keeps in line. The first group is the catalog's.
type Replicas struct {
	Catalog Catalog
	Groups  []Group
}

func (g *Group) whole() bool { return g.Whole == nil || g.Whole() }

// handOver passes the leadership on to the node of that Raft name.
func (g *Group) handOver(ctx context.Context, to string) error {
	if g.HandOver != nil {
		return g.HandOver(ctx, to)
	}
	return g.Raft.TransferLeadershipTo(ctx, to)
}

// group returns a group by number.
func (r *Replicas) group(id uint32) *Group {
	if r == nil {
		return nil
	}
	for i := range r.Groups {
		if r.Groups[i].ID == id {
			return &r.Groups[i]
		}
	}
	return nil
}
