package placement

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/metasvc/raftgroup"
)

// Census is what a Source may be, too: it knows which other replicas are whole.
type Census interface {
	// Whole returns the Raft ids of the other replicas of a group that say of
	// themselves that they are whole, asking them now.
	Whole(ctx context.Context, group uint32) []string
}

// handOverTime is how long a replica that is not whole looks for one that takes the
// leadership from it.
const handOverTime = 3 * time.Second

// turn is who leads, and what has been made of it.
type turn struct {
	mu      sync.Mutex
	present raftgroup.Leadership
	passed  int64 // when the leadership was offered to all, 0 = never
}

// turned takes in who leads. A replica that is elected and is not whole hands the
// leadership to one that is before it serves; if there is none, it serves, and what
// it lacks is pulled before anything else.
func (g *Group) turned(l raftgroup.Leadership) {
	g.turn.mu.Lock()
	defer g.turn.mu.Unlock()
	g.turn.present = l
	if l.Leader && !g.Whole() && !g.alone() {
		g.drivers.once(func() {
			if !g.handOver() {
				g.puller.hurry()
				g.serve(l)
			}
		})
		return
	}
	g.take(l)
}

// serve is take, unless somebody else leads by now.
func (g *Group) serve(l raftgroup.Leadership) {
	g.turn.mu.Lock()
	defer g.turn.mu.Unlock()
	if g.turn.present == l {
		g.take(l)
	}
}

// take begins or ends serving. The caller holds the turn.
func (g *Group) take(l raftgroup.Leadership) {
	if l.Leader {
		g.onLead(l.Term)
	} else {
		g.onUnlead()
	}
	if g.cfg.OnLead != nil {
		g.cfg.OnLead(l)
	}
}

// handOver gives the leadership to a voter that is whole, as far as anybody knows. It
// returns false if this node leads on.
func (g *Group) handOver() bool {
	ctx, cancel := context.WithTimeout(g.drivers.ctx, handOverTime)
	defer cancel()
	rg := g.raft.Load()
	log := g.cfg.Logger.With().Uint32("placement", g.cfg.ID).Logger()
	for _, id := range g.heirs(ctx) {
		if g.Whole() {
			return false // meanwhile
		}
		err := rg.TransferLeadershipTo(ctx, id)
		if err == nil {
			log.Info().Str("to", id).Msg("segments are missing here: the leadership was handed over")
			return true
		}
		if leads, _ := rg.Leader(); !leads {
			return true
		}
		log.Warn().Err(err).Str("to", id).Msg("the leadership was not taken over")
	}
	log.Warn().Msg("segments are missing here and no other replica leads: they are pulled as they are asked for")
	return false
}

// heirs are the voters that may be whole. Where that is not known, it is all: whoever
// is not hands over in its turn, and the second time round it leads.
func (g *Group) heirs(ctx context.Context) []string {
	var voters []string
	for _, s := range g.raft.Load().Servers() {
		if !s.Learner && s.ID != g.cfg.Raft.NodeID {
			voters = append(voters, s.ID)
		}
	}
	if c, ok := g.cfg.Raft.Source.(Census); ok {
		whole := c.Whole(ctx, g.cfg.ID)
		return slices.DeleteFunc(voters, func(id string) bool { return !slices.Contains(whole, id) })
	}
	if now := g.clock.mono(); g.turn.passed == 0 || now-g.turn.passed > int64(10*handOverTime) {
		g.turn.passed = max(now, 1)
		return voters
	}
	return nil
}

// alone says whether there is no other replica: what is lost here is lost, and nobody
// has to make the same segments.
func (g *Group) alone() bool {
	if rg := g.raft.Load(); rg != nil {
		return rg.Alone()
	}
	return g.sole
}

// keepUp is called once a second: replicas come and go.
func (g *Group) keepUp() {
	if g.puller == nil {
		return
	}
	alone := g.alone()
	log := g.machine.shown.Load()
	log.SetAlone(alone)
	if !alone && !log.Whole() {
		signal(g.puller.wake)
	}
	g.sent.expire(g.clock.mono())
}
