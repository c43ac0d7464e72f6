package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
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

// tenures are those that nodes were told of last, of one protocol. They are keyed state of
// the durable placement group, so that they go on when another node serves:
//
//	key   "c/" protocol
//	value version, highest number ever given, number of nodes, and each: name, number
type tenures struct {
	loaded bool
	last   uint64
	list   []Tenure // in the order of names
}

// offices are the tenures of all protocols.
type offices struct {
	mu sync.Mutex
	of map[kernel.Protocol]*tenures
}

// get returns those of a protocol. The caller holds mu.
func (o *offices) get(p kernel.Protocol) *tenures {
	if o.of == nil {
		o.of = make(map[kernel.Protocol]*tenures)
	}
	if o.of[p] == nil {
		o.of[p] = new(tenures)
	}
	return o.of[p]
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
func (b *Broker) Coordinators(ctx context.Context, p kernel.Protocol) ([]Tenure, error) {
	b.offices.mu.Lock()
	defer b.offices.mu.Unlock()
	t := b.offices.get(p)
	if !t.loaded {
		if err := t.load(b.durable, p); err != nil {
			return nil, err
		}
	}
	if b.node.Alone() && len(t.list) == 0 {
		return []Tenure{{Node: b.node.ID()}}, nil
	}
	nodes := b.coordinators(p)
	if slices.EqualFunc(t.list, nodes, func(x Tenure, node string) bool { return x.Node == node }) {
		return t.list, nil
	}
	last, list := t.next(nodes)
	ctx, cancel := context.WithTimeout(ctx, tenureWait)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	if err := b.durable.Put(ctx, []placement.KV{{Key: tenureKey(p), Value: appendTenures(nil, last, list)}}); err != nil {
		t.loaded, t.list = false, nil // it may be written
		return nil, kernel.Errorf(kernel.CodeUnavailable, "", "", "the nodes that coordinate groups cannot be told: %v", err)
	}
	t.last, t.list = last, list
	return list, nil
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
	if err := c.Coordinates(ctx, by, group); err != nil {
		return err
	}
	return c.CommitOffsets(ctx, group, commits)
}

// Coordinates returns CodeFenced unless a node coordinates a group of readers, in that
// tenure: another one does, or has meanwhile, and it may not know.
func (c *Conn) Coordinates(ctx context.Context, by Tenure, group string) error {
	now, err := c.b.Coordinators(ctx, c.about.Protocol)
	if err != nil {
		return err
	}
	if Coordinator(now, c.tenant.name, group) != by {
		return kernel.Errorf(kernel.CodeFenced, KindGroup, group, "another node coordinates it, or has meanwhile")
	}
	return nil
}
