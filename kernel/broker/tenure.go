package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// Tenure is a time without a break in which a node, by its Raft name, coordinates groups of
// readers. Of two tenures the later one has the higher number: what a node does in the name
// of an earlier one of its own may have been somebody else's to do meanwhile.
type Tenure struct {
	Node   string
	Number uint64
}

// Office is what a node coordinates groups of readers in: a protocol, and a tenure of its own.
type Office struct {
	Protocol kernel.Protocol
	Tenure
}

// Coordination is which nodes coordinate groups of readers of a protocol.
type Coordination struct {
	Nodes []Tenure // by name; at least one
	// Last is the highest number that was ever given, 0 if it is not known. Who sees it rise
	// by more than there are new numbers among the nodes has missed a tenure between.
	Last uint64
	// Keeps says that memberships are kept (Membership): all these nodes know of that.
	Keeps bool
}

// tenures are those that nodes were told of last, of one protocol. They are keyed state of
// the durable placement group, so that they go on when another node serves:
//
//	key   "c/" protocol
//	value version, highest number ever given, number of nodes, and each: name, number
type tenures struct {
	loaded bool
	last   uint64
	list   []Tenure // in the order of names

	unaware map[string]struct{} // nodes of earlier versions, which know of no memberships
	kept    atomic.Bool         // there may be some
}

// offices are the tenures of all protocols. Who changes who is in office has mu for itself;
// who writes in the name of one has it, shared, until that has its place in the log. So what is
// written comes before the change, and all that is read after it, or is refused.
type offices struct {
	mu     sync.RWMutex
	of     map[kernel.Protocol]*tenures
	closed bool // the facade ends: the next one may have told others already
}

// get returns those of a protocol. The caller holds mu for itself.
func (o *offices) get(p kernel.Protocol) *tenures {
	if o.of == nil {
		o.of = make(map[kernel.Protocol]*tenures)
	}
	if o.of[p] == nil {
		o.of[p] = &tenures{unaware: make(map[string]struct{})}
		o.of[p].kept.Store(true)
	}
	return o.of[p]
}

// close has nobody write in the name of an office any more.
func (o *offices) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
}

const (
	tenurePrefix  = "c/"
	tenureVersion = 1
	// tenureWait bounds the writing of a change.
	tenureWait = 2 * time.Second
)

// Coordinators are the nodes that coordinate groups of readers of a protocol, by name: all
// that are reached and take its clients, as the node that serves sees it, and at least one.
// What it returns is written down before.
func (b *Broker) Coordinators(ctx context.Context, p kernel.Protocol) (Coordination, error) {
	o := &b.offices
	o.mu.RLock()
	now, known := o.of[p].present(b, p)
	o.mu.RUnlock()
	if known {
		return now, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.get(p)
	if !t.loaded {
		if err := t.load(b.durable, p); err != nil {
			return Coordination{}, err
		}
	}
	if now, known = t.present(b, p); known {
		return now, nil
	}
	last, list := t.next(b.coordinators(p))
	err := error(errStopping())
	if !o.closed {
		err = b.appoint(ctx, p, appendTenures(nil, last, list))
	}
	if err != nil {
		t.loaded, t.list = false, nil // it may be written
		return Coordination{}, kernel.Errorf(kernel.CodeUnavailable, "", "", "the nodes that coordinate groups cannot be told: %v", err)
	}
	t.last, t.list = last, list
	return t.as(list), nil
}

// appoint writes tenures down.
func (b *Broker) appoint(ctx context.Context, p kernel.Protocol, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, tenureWait)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	wait, err := b.durable.BeginPut(b.lead.placement, []placement.KV{{Key: tenureKey(p), Value: value}})
	if err != nil {
		return err
	}
	return wait(ctx)
}

// told is the coordination as nodes were told of it last; false if that is not known.
func (t *tenures) told(b *Broker) (Coordination, bool) {
	switch {
	case t == nil || !t.loaded:
		return Coordination{}, false
	case len(t.list) > 0:
		return t.as(t.list), true
	}
	return t.as([]Tenure{{Node: b.node.ID()}}), b.node.Alone() // from the beginning
}

// present is told, if that is how it is to be.
func (t *tenures) present(b *Broker, p kernel.Protocol) (Coordination, bool) {
	now, known := t.told(b)
	if !known || len(t.list) == 0 {
		return now, known
	}
	return now, slices.EqualFunc(t.list, b.coordinators(p), func(x Tenure, node string) bool { return x.Node == node })
}

// as is the coordination by nodes.
func (t *tenures) as(list []Tenure) Coordination {
	unaware := func(x Tenure) bool { _, is := t.unaware[x.Node]; return is }
	return Coordination{Nodes: list, Last: t.last, Keeps: !slices.ContainsFunc(list, unaware)}
}

// next are the tenures of nodes: who has been told of goes on, others begin one.
func (t *tenures) next(nodes []string) (last uint64, list []Tenure) {
	last, list = t.last, make([]Tenure, len(nodes))
	for i, node := range nodes {
		at := slices.IndexFunc(t.list, func(x Tenure) bool { return x.Node == node })
		if at < 0 {
			last++
			list[i] = Tenure{node, last}
		} else {
			list[i] = t.list[at]
		}
	}
	return last, list
}

func tenureKey(p kernel.Protocol) []byte { return []byte(tenurePrefix + string(p)) }

func appendTenures(b []byte, last uint64, list []Tenure) []byte {
	b = codec.AppendUint(append(b, tenureVersion), last)
	b = codec.AppendUint(b, uint64(len(list)))
	for _, t := range list {
		b = codec.AppendUint(codec.AppendString(b, t.Node), t.Number)
	}
	return b
}

// load reads what was written down.
func (t *tenures) load(g *placement.Group, p kernel.Protocol) error {
	value, err := g.Get(tenureKey(p))
	if err != nil {
		return err
	}
	t.last, t.list = 0, nil
	if value != nil {
		r := codec.Reader{B: value}
		if v := r.Byte(); r.Err() == nil && v != tenureVersion {
			return fmt.Errorf("unknown version %d of who coordinates groups", v)
		}
		t.last = r.Uint()
		for range r.Count() {
			if r.Err() != nil {
				break
			}
			t.list = append(t.list, Tenure{r.String(), r.Uint()})
		}
		if err := r.Done(); err != nil {
			return fmt.Errorf("who coordinates groups: %w", err)
		}
	}
	t.loaded = true
	return nil
}

// CommitOffsetsBy is CommitOffsets for members of a group who have asked a coordinator for
// it, or what Coordinates says.
func (c *Conn) CommitOffsetsBy(ctx context.Context, by Tenure, group string, commits []OffsetCommit) error {
	entries, err := c.offsetEntries(group, commits)
	if err != nil {
		return err
	}
	return c.b.putBy(ctx, Office{c.about.Protocol, by}, c.tenant.name, group, false, entries)
}

// Coordinates returns CodeFenced unless a node coordinates a group of readers, in that
// tenure: another one does, or has meanwhile, and it may not know.
func (c *Conn) Coordinates(ctx context.Context, by Tenure, group string) error {
	_, err := c.b.coordinates(ctx, Office{c.about.Protocol, by}, c.tenant.name, group)
	return err
}

func (b *Broker) coordinates(ctx context.Context, by Office, tenant, group string) (Coordination, error) {
	now, err := b.Coordinators(ctx, by.Protocol)
	if err == nil {
		err = now.check(by, tenant, group)
	}
	return now, err
}

// check returns CodeFenced unless it is that office that coordinates a group.
func (c *Coordination) check(by Office, tenant, group string) error {
	if Coordinator(c.Nodes, tenant, group) != by.Tenure {
		return kernel.Errorf(kernel.CodeFenced, KindGroup, group, "another node coordinates it, or has meanwhile")
	}
	return nil
}

// putBy writes what a coordinator of a group of readers has decided, or what Coordinates says. The
// coordinator that follows finds it written, or it never will be. What has begun is
// finished even when ctx ends. membership says that it is one.
func (b *Broker) putBy(ctx context.Context, by Office, tenant, group string, membership bool, entries []placement.KV) error {
	if _, err := b.coordinates(ctx, by, tenant, group); err != nil || len(entries) == 0 {
		return err
	}
	wait, err := b.beginBy(ctx, by, tenant, group, membership, entries)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.ctx, commitWait)
	defer cancel()
	return wait(ctx)
}

// beginBy gives entries their place in the log, if it is that office now that coordinates.
func (b *Broker) beginBy(ctx context.Context, by Office, tenant, group string, membership bool, entries []placement.KV) (wait func(context.Context) error, err error) {
	o := &b.offices
	o.mu.RLock()
	defer o.mu.RUnlock()
	t := o.of[by.Protocol]
	now, known := t.told(b)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case o.closed || !known:
		return nil, kernel.Errorf(kernel.CodeUnavailable, KindGroup, group, "it is not known which node coordinates it")
	}
	if err := now.check(by, tenant, group); err != nil {
		return nil, err
	}
	if membership {
		if !now.Keeps {
			return nil, errUnkept
		}
		t.kept.Store(true)
	}
	return b.durable.BeginPut(b.lead.placement, entries)
}
