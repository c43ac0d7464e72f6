package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/kafka/group"
)

const (
	// viewEvery is how often it is asked which nodes coordinate groups, and viewFresh how
	// old the last answer may be that decides against a client.
	viewEvery = time.Second
	viewFresh = 100 * time.Millisecond
	// viewLost is how long nobody may tell before this node coordinates nothing any more:
	// another one may, whom clients do not see while they hear from this one.
	viewLost = 10 * time.Second
	// viewPatience is how long such a question waits for a host.
	viewPatience = time.Second
)

// coordinators knows which nodes coordinate groups: each group one of them. The node that
// serves decides, and refuses what a node commits in a tenure that is not the present one;
// so that two nodes may differ for a moment does no harm. Safe for concurrent use.
type coordinators struct {
	srv *Server

	mu    sync.Mutex
	nodes []broker.Tenure
	own   broker.Tenure // this node's among them, the zero one if there is none
	last  uint64        // the highest number that was given, 0 if it is not known
	kept  bool          // memberships are kept
	at    time.Time
	stale chan struct{} // capacity 1: the view is to be taken anew
}

// view returns the nodes, as of not longer ago than age; when nobody serves, as they were
// told last, for a while.
func (k *coordinators) view(ctx context.Context, age time.Duration) ([]broker.Tenure, error) {
	k.mu.Lock()
	nodes, at := k.nodes, k.at
	k.mu.Unlock()
	if nodes != nil && time.Since(at) <= age {
		return nodes, nil
	}
	ctx, cancel := context.WithTimeout(ctx, viewPatience)
	defer cancel()
	asked := time.Now()
	now, err := k.srv.node.Coordinators(ctx, protocol)
	if err != nil {
		if nodes != nil && time.Since(at) <= viewLost {
			return nodes, nil
		}
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if asked.After(k.at) {
		k.take(now, asked)
	}
	return k.nodes, nil
}

// take takes a view over. In a tenure that is new another node may have had the groups
// meanwhile: they end here, before anything is committed in it, and are loaded anew. So they do if
// a tenure of another node went by unseen. k.mu is held.
func (k *coordinators) take(now broker.Coordination, asked time.Time) {
	var own broker.Tenure
	begun := uint64(0) // since the last view
	for _, t := range now.Nodes {
		if t.Node == k.srv.cfg.Node {
			own = t
		}
		if t.Number > k.last {
			begun++
		}
	}
	if missed := k.last > 0 && now.Last > k.last+begun; own != k.own || missed {
		k.srv.groups.Begin(own.Number)
	}
	k.nodes, k.own, k.last, k.kept, k.at = now.Nodes, own, now.Last, now.Keeps, asked
}

// keeps reports whether memberships are kept, as far as this node knows.
func (k *coordinators) keeps() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept
}

// tenure is this node's, as far as it knows.
func (k *coordinators) tenure() broker.Tenure {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.own
}

// of returns the node that coordinates a group.
func (k *coordinators) of(ctx context.Context, key group.Key, age time.Duration) (string, error) {
	nodes, err := k.view(ctx, age)
	if err != nil {
		return "", err
	}
	return broker.Coordinator(nodes, key.Tenant, key.Group).Node, nil
}

// watch has the groups end here that another node coordinates, until ctx ends.
func (k *coordinators) watch(ctx context.Context) {
	tick := time.NewTicker(viewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-k.stale:
		case <-ctx.Done():
			return
		}
		if k.srv.groups.Empty() {
			continue
		}
		nodes, err := k.view(ctx, 0)
		k.srv.groups.Keep(func(key group.Key) bool {
			return err == nil && broker.Coordinator(nodes, key.Tenant, key.Group).Node == k.srv.cfg.Node
		})
	}
}

// overtaken has the view taken anew: the node that serves knows better.
func (k *coordinators) overtaken() {
	select {
	case k.stale <- struct{}{}:
	default:
	}
}

// coordinated returns the code for a group that the user may not read, or that this node
// does not coordinate, or of which it cannot learn what the coordinators before have kept; 0
// for others.
func (c *conn) coordinated(name string) int16 {
	if code := c.groupRefused(name); code != 0 {
		return code
	}
	key := c.groupKey(name)
	for _, age := range []time.Duration{2 * viewEvery, viewFresh} {
		node, err := c.srv.views.of(c.ctx, key, age)
		if err != nil {
			return groupCode(err)
		}
		if node == c.srv.cfg.Node {
			ctx, cancel := context.WithTimeout(c.ctx, patience)
			defer cancel()
			return int16(c.srv.groups.Load(ctx, key))
		}
	}
	return kerr.NotCoordinator.Code
}

// coordinates reports whether this node coordinates a group, as far as it knows.
func (c *conn) coordinates(name string) bool {
	node, err := c.srv.views.of(c.ctx, c.groupKey(name), 2*viewEvery)
	return err == nil && node == c.srv.cfg.Node
}

// at returns the broker of that Raft name as the client reaches it.
func at(list []reachable, node string) (reachable, bool) {
	i := slices.IndexFunc(list, func(r reachable) bool { return r.node == node })
	if i < 0 {
		return reachable{}, false
	}
	return list[i], true
}
