package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/transport"
)

const (
	// joinPause is between two rounds of asking the seeds.
	joinPause = 500 * time.Millisecond
	// foundAfter is how long the first seed asks those who do not answer before it founds
	// with a majority of the seeds.
	foundAfter = 3 * time.Second
	// announceTime is how long a member that starts waits for the others.
	announceTime = 3 * time.Second
)

// Welcome is what a node learns that has been let in.
type Welcome struct {
	Cluster string
	Secret  []byte
}

// Join asks the seeds, for as long as the context allows, until this node is let in:
// it is a member then, and its Raft groups get their servers from a leader. The caller
// stores the Welcome before it opens them; until then the node may join again. One that
// was a member (Config.Former) never founds. Errors: a [*Refusal] (see [Final]), [ErrFounds].
func (n *Node) Join(ctx context.Context) (Welcome, error) {
	others, first := n.seeds()
	first = first && n.cfg.Former == nil
	if len(others) == 0 && !first {
		return Welcome{}, errors.New("cluster: there is no other node to ask: the seeds are missing")
	}
	if len(others) == 0 {
		return Welcome{}, ErrFounds
	}
	start, said := time.Now(), complaint{}
	for {
		w, err := n.askToJoin(ctx, others)
		if err == nil {
			n.settle(func(id *Identity) { id.Cluster = w.Cluster })
			return w, nil
		}
		if n.final(err) {
			return Welcome{}, err
		}
		if first && !memberAnswered(err) {
			n := newcomers(err)
			most := n+1 > (len(others)+1)/2
			if n == len(others) || most && time.Since(start) >= foundAfter {
				return Welcome{}, ErrFounds
			}
		}
		if said.text != err.Error() || time.Since(said.at) > complainEvery {
			said = complaint{err.Error(), time.Now()}
			n.log.Warn().Err(err).Msg("not let into the cluster yet")
		}
		select {
		case <-time.After(joinPause):
		case <-ctx.Done():
			return Welcome{}, fmt.Errorf("cluster: join: %w (%w)", ctx.Err(), err)
		}
	}
}

// Found tells the node the id of the cluster that it has founded, after ErrFounds.
func (n *Node) Found(cluster string, secret []byte) {
	n.settle(func(id *Identity) { id.Cluster, id.Raft = cluster, id.Node })
	n.secret.Store(&secret)
}

func (n *Node) settle(fn func(*Identity)) {
	id := n.Self()
	fn(&id)
	n.self.Store(&id)
}

// seeds are the seeds but for this node itself, and whether it is the first one.
func (n *Node) seeds() (others []string, first bool) {
	self := n.Self().Address
	for i, s := range n.cfg.Seeds {
		if s == self {
			first = first || i == 0
			continue
		}
		if !slices.Contains(others, s) {
			others = append(others, s)
		}
	}
	return others, first
}

// errMember wraps what a member of a cluster has said.
type errMember struct{ error }

func (e errMember) Unwrap() error { return e.error }

func memberAnswered(err error) bool {
	_, ok := errors.AsType[errMember](err)
	return ok
}

// errNewcomer wraps what a node has said that belongs to no cluster either.
type errNewcomer struct{ error }

func (e errNewcomer) Unwrap() error { return e.error }

// newcomers counts those who have said so, of all who were asked.
func newcomers(err error) (n int) {
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return 0
	}
	for _, err := range all.Unwrap() {
		if _, ok := errors.AsType[errNewcomer](err); ok {
			n++
		}
	}
	return n
}

// askToJoin asks each seed, and whom they name, until one lets this node in.
func (n *Node) askToJoin(ctx context.Context, seeds []string) (Welcome, error) {
	var errs []error
	asked := map[string]bool{}
	for ask := slices.Clone(seeds); len(ask) > 0; ask = ask[1:] {
		address := ask[0]
		if asked[address] || len(asked) > catalog.MaxNodes {
			continue
		}
		asked[address] = true
		w, leader, err := n.askOne(ctx, address)
		switch {
		case err == nil && leader == "":
			return w, nil
		case err == nil:
			ask = append(ask, leader)
			err = errMember{fmt.Errorf("%s names %s as the leader", address, leader)}
		case n.final(err):
			return Welcome{}, err
		}
		errs = append(errs, err)
	}
	return Welcome{}, errors.Join(errs...)
}

func (n *Node) askOne(ctx context.Context, address string) (w Welcome, leader string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*meetTime)
	defer cancel()
	var reply joinReply
	who, err := n.links.call(ctx, "", address, methodJoin, enterRequest{joinRequest{Fronts: fronts(n.cfg.Fronts), Version: n.cfg.Version}, n.cfg.Former}, &reply)
	switch {
	case err == nil && reply.Refused != nil:
		err = reply.Refused
	case err == nil && reply.Welcome != nil:
		return *reply.Welcome, "", nil
	}
	switch {
	case err != nil && who.Cluster != "":
		err = errMember{err}
	case err != nil && who.Node != "":
		err = errNewcomer{err}
	}
	return Welcome{}, reply.Leader, err
}

// answerJoin lets a node in, if this one leads the catalog.
func (n *Node) answerJoin(ctx context.Context, from Identity, req *enterRequest) (*joinReply, error) {
	refuse := func(code transport.Code, format string, args ...any) (*joinReply, error) {
		return &joinReply{Refused: &Refusal{Code: code, Reason: fmt.Sprintf(format, args...)}}, nil
	}
	self, r := n.Self(), n.replicas.Load()
	if self.Cluster == "" || r == nil {
		return refuse(transport.CodeStarting, "node %s is not ready yet", self.Node)
	}
	if from.Cluster != "" && from.Cluster != self.Cluster {
		return refuse(transport.CodeCluster, "%v", strangers(self, from))
	}
	if leads, leader := r.group(metasvc.CatalogGroup).Raft.Leader(); !leads {
		address, err := n.resolve(leader)
		if leader == "" || leader == self.Raft || err != nil {
			return refuse(transport.CodeNotLeader, "the cluster has no leader at the moment")
		}
		return &joinReply{Leader: address}, nil
	}
	if from.Node == "" || from.Raft == "" || from.Incarnation == "" || strings.ContainsAny(from.Node+from.Raft, "\x00/") {
		return refuse(transport.CodeOther, "a node without a name")
	}
	if err := req.check(from); err != nil {
		return refuse(transport.CodeOther, "%v", err)
	}
	if req.Former != nil {
		if err := n.replace(ctx, from, *req.Former); err != nil {
			return &joinReply{Refused: asRefusal(err)}, nil
		}
	}
	if err := n.belongs(from); err != nil {
		return &joinReply{Refused: asRefusal(err)}, nil
	}
	if err := n.reach(ctx, from); err != nil {
		return &joinReply{Refused: unreachable(from, err)}, nil
	}
	_, err := r.Catalog.Do(ctx, catalog.PutNode{Node: catalog.Node{ID: from.Node, Raft: from.Raft, Incarnation: from.Incarnation,
		Address: from.Address, Fronts: req.Fronts, Version: req.Version}})
	if err != nil {
		return &joinReply{Refused: asRefusal(err)}, nil
	}
	n.stir()
	return &joinReply{Welcome: &Welcome{Cluster: self.Cluster, Secret: n.sharedSecret()}}, nil
}

// Bounds of what a node that joins tells of itself, which all nodes keep and show.
const (
	maxTold   = 255 // bytes of a text
	maxFronts = 32
)

// check returns an error if what a node tells is not what a node would.
func (r *joinRequest) check(from Identity) error {
	if len(r.Fronts) > maxFronts {
		return fmt.Errorf("%d listeners, more than %d", len(r.Fronts), maxFronts)
	}
	told := []string{from.Node, from.Incarnation, from.Address, r.Version}
	for _, f := range r.Fronts {
		told = append(told, f.Name, f.Address)
	}
	for _, s := range told {
		if len(s) > maxTold || strings.ContainsFunc(s, func(c rune) bool { return c == unicode.ReplacementChar || !unicode.IsPrint(c) }) {
			return fmt.Errorf("%.64q is too long, or has characters that cannot be shown", s)
		}
	}
	return nil
}

// asRefusal makes a refusal of an error.
func asRefusal(err error) *Refusal {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r
	}
	code := transport.CodeOther
	switch kernel.CodeOf(err) {
	case kernel.CodeExists:
		code = transport.CodeIncarnation
	case kernel.CodeNotAllowed:
		code = transport.CodeRemoved
	case kernel.CodeUnavailable, kernel.CodeUnknown:
		code = transport.CodeNotLeader
	}
	return &Refusal{Code: code, Reason: err.Error()}
}

// reach returns an error if a node does not answer where it says it is.
func (n *Node) reach(ctx context.Context, id Identity) error {
	ctx, cancel := context.WithTimeout(ctx, meetTime)
	defer cancel()
	c, who, err := n.mux.Dial(ctx, id.Address, transport.Hello{Kind: transport.KindRPC, To: id.Raft})
	if err != nil {
		return err
	}
	_ = c.Close()
	if who.Boot != id.Boot {
		return twin(who, id)
	}
	return nil
}

func unreachable(id Identity, err error) *Refusal {
	return &Refusal{Code: transport.CodeUnreachable, Reason: fmt.Sprintf("node %s cannot be reached at %s, where it says it is (cluster.advertise): %v", id.Node, id.Address, err)}
}

// Announce tells the others that this member is back, and where. An error is a
// [*Refusal]: it is none any more, another process is it, or all seeds are of another
// cluster. Those who cannot be reached say nothing against it; they are told later.
func (n *Node) Announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	type target struct{ raft, address string }
	var targets []target
	for _, p := range n.book.list() {
		targets = append(targets, target{p.Raft, p.Address})
	}
	seeds, _ := n.seeds()
	for _, s := range seeds {
		targets = append(targets, target{"", s})
	}
	answers := make(chan error, len(targets))
	for _, t := range targets {
		n.work.Go(func() {
			err := n.exchange(ctx, t.raft, t.address)
			r, ok := errors.AsType[*Refusal](err)
			if !ok || !(expelled(r) && r.From != "") && !(Final(r) && t.raft == "") {
				err = nil // strangers at an address of old are none of our business; at that of a seed they may be
			}
			answers <- err
		})
	}
	var refused error
	var strange []error
	for range targets {
		err := <-answers
		if r, _ := errors.AsType[*Refusal](err); r != nil && r.Code == transport.CodeCluster {
			strange = append(strange, err)
		} else if err != nil {
			refused = err
		}
	}
	return n.foreign(refused, strange, len(seeds))
}

// foreign decides about seeds of another cluster. One of several may have lost its disk
// and founded a cluster of its own: the others must not stay away because of it.
func (n *Node) foreign(refused error, strange []error, seeds int) error {
	if refused == nil && len(strange) > 0 && len(strange) == seeds {
		return strange[0]
	}
	for _, err := range strange {
		n.log.Error().Err(err).Msg("a node of cluster.join is of another cluster, as one is that has founded anew with an empty directory: stop it, and find out which data is right")
	}
	return refused
}
