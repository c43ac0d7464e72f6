package forward

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

const (
	// askTime bounds what a host is asked without a context.
	askTime = 5 * time.Second
	// connectTime bounds the opening of a link.
	connectTime = 10 * time.Second
)

// Peers reaches other nodes (broker.Node).
type Peers interface {
	OpenClient(ctx context.Context, raftID string) (Stream, error)
	CallLogin(ctx context.Context, raftID string, req []byte) ([]byte, error)
}

// Host is another node that serves. It implements edge.Host, and is of no use any more
// when that node does not serve: then all it does fails with CodeUnavailable. It costs
// nothing while nobody uses it. Safe for concurrent use.
type Host struct {
	peers Peers
	node  string
}

var _ edge.Host = (*Host)(nil)

// NewHost returns the node of that Raft name (broker.Node.Leader) as a host.
func NewHost(peers Peers, raftID string) *Host { return &Host{peers, raftID} }

// The questions about logins.
const (
	askAuthenticate byte = 1 + iota
	askAdmit
	askAnonymous
	askTenant
	askScram        // the user is the mechanism, and the password the first message
	askScramEnd     // the user names the login, and the password is the second
	askCoordinators // the user is the protocol, and the password aware, or empty from earlier versions
	askMembership   // and from here on what a coordinator asks: see office
	askKeepMembership
	askMemberships
)

// ask asks about a login, and returns the reader of the answer.
func (h *Host) ask(ctx context.Context, what byte, tenant, user, password string, remote net.Addr) (*reader, error) {
	b := []byte{what}
	for _, s := range []string{tenant, user, password} {
		b = codec.AppendString(b, s)
	}
	return h.call(ctx, appendAddr(b, remote))
}

// call returns the reader of the answer to a question.
func (h *Host) call(ctx context.Context, question []byte) (*reader, error) {
	answer, err := h.peers.CallLogin(ctx, h.node, question)
	if err != nil {
		return nil, err
	}
	r := read(answer)
	if err := r.error(); err != nil || r.Err() != nil {
		return nil, either(err, r.Err())
	}
	return r, nil
}

func either(err, malformed error) error {
	if malformed != nil {
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the answer of the node that serves is malformed")
	}
	return err
}

func (h *Host) identify(ctx context.Context, what byte, tenant, user, password string, remote net.Addr) (kernel.Identity, error) {
	r, err := h.ask(ctx, what, tenant, user, password, remote)
	if err != nil {
		return kernel.Identity{}, err
	}
	id := r.identity()
	return id, either(nil, r.Done())
}

// Authenticate implements edge.Host.
func (h *Host) Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error) {
	return h.identify(ctx, askAuthenticate, tenant, user, password, remote)
}

// Admit implements edge.Host. It takes 5 seconds at most.
func (h *Host) Admit(tenant, user string, remote net.Addr) (kernel.Identity, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	id, err := h.identify(ctx, askAdmit, tenant, user, "", remote)
	return id, inTime(err)
}

// Anonymous implements edge.Host. It takes 5 seconds at most.
func (h *Host) Anonymous(tenant string, remote net.Addr) (kernel.Identity, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	id, err := h.identify(ctx, askAnonymous, tenant, "", "", remote)
	return id, inTime(err)
}

// HasTenant implements edge.Host. It takes 5 seconds at most.
func (h *Host) HasTenant(tenant string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	r, err := h.ask(ctx, askTenant, tenant, "", "", nil)
	if err != nil {
		return false, inTime(err)
	}
	known := r.flag()
	return known, either(nil, r.Done())
}

// errSilent is the outcome of a question that a node does not answer in time.
var errSilent = &kernel.Error{Code: kernel.CodeUnavailable, Detail: "the node that serves does not answer"}

// inTime says whose fault it is that a question without a context has run out of time.
func inTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errSilent
	}
	return err
}

// Connect implements edge.Host: it opens a stream to the node. It takes 10 seconds at
// most. end may not call Close.
func (h *Host) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (edge.Link, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	s, err := h.peers.OpenClient(ctx, h.node)
	if err != nil {
		return nil, err
	}
	l := newLink(s, info.Channels, end)
	l.out.mu.Lock()
	start := l.out.begin(kindOpen)
	l.out.buf = appendInfo(appendIdentity(l.out.buf, id), &info)
	l.out.end(start)
	l.out.mu.Unlock()
	l.start()
	select {
	case err = <-l.opened:
	case <-ctx.Done():
		l.abandon()
		err = errSilent
	}
	if err != nil {
		<-l.done
		if _, known := errors.AsType[*kernel.Error](err); !known {
			err = kernel.Errorf(kernel.CodeUnavailable, "", "", "the link could not be opened: %v", err)
		}
		return nil, err
	}
	return l, nil
}
