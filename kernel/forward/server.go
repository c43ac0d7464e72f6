package forward

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// openTime is how long a stream may be without its first frame.
const openTime = 10 * time.Second

// Server serves clients of other nodes with the broker of this one. It implements
// cluster.ClientServer. Safe for concurrent use.
type Server struct {
	serving func() *broker.Broker
	log     zerolog.Logger

	mu     sync.Mutex
	closed bool
	open   kernel.Ordered[session]
	tokens map[string]*session // of open those that have one, the latest of each
	// results are those of clients by their token, also of some whose stream has broken
	results map[string]*results
	work    sync.WaitGroup
	scrams  scrams
	live    atomic.Int64        // bytes of live messages under way to other nodes
	reads   *semaphore.Weighted // bytes of logs that are read for other nodes
}

var _ cluster.ClientServer = (*Server)(nil)

// NewServer makes a server. serving returns the broker of this node's present
// leadership, nil while another node serves: then clients are refused with
// CodeUnavailable. It is called for each client and login, from any goroutine.
func NewServer(serving func() *broker.Broker, log zerolog.Logger) *Server {
	return &Server{
		serving: serving, log: log, tokens: make(map[string]*session), results: make(map[string]*results),
		reads: semaphore.NewWeighted(readTotal),
	}
}

// Close ends all streams and waits for what they have started. Clients should have left
// before, as they do when the broker closes: what they have published and do not know of
// is unknown to them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.open.List() {
		c.stream.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// ServeClient implements cluster.ClientServer.
func (s *Server) ServeClient(from string, stream Stream) error {
	c := newSession(stream, &s.live)
	c.server, c.from = s, from
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		stream.Close()
		return errGone()
	}
	s.open.Add(c)
	s.work.Add(1)
	s.mu.Unlock()
	defer s.work.Done()
	broken := true
	defer func() {
		s.mu.Lock()
		s.open.Remove(c)
		if s.tokens[c.token] == c {
			delete(s.tokens, c.token)
			s.keepResults(c.token, broken)
		}
		s.mu.Unlock()
	}()
	err := c.run(s.serving())
	broken = err != nil
	if errors.Is(err, errMalformed) {
		s.log.Error().Err(err).Str("node", from).Msg("the connection of a client of another node is ended")
	}
	return err
}

// replace notes that a session is a client's latest: what is still to be read of an earlier
// one, whose stream may have broken at the client's end only, is not published any more.
func (s *Server) replace(c *session, token string) {
	if token == "" {
		return
	}
	s.mu.Lock()
	before := s.tokens[token]
	c.token, s.tokens[token] = token, c
	s.mu.Unlock()
	if before != nil {
		before.pressure.stop()
	}
}

// AnswerLogin implements cluster.ClientServer.
func (s *Server) AnswerLogin(ctx context.Context, from string, req []byte) ([]byte, error) {
	if len(req) > 0 && req[0] >= askMembership && req[0] <= askMemberships {
		return s.answerOffice(ctx, from, req)
	}
	r := read(req)
	what, tenant, user, password, remote := r.Byte(), r.String(), r.String(), r.String(), r.addr()
	if err := r.Done(); err != nil {
		return nil, fmt.Errorf("%w: a login: %w", errMalformed, err)
	}
	b := s.serving()
	if b == nil {
		return appendError(nil, errGone()), nil
	}
	var id kernel.Identity
	var answer []byte
	var err error
	switch what {
	case askAuthenticate:
		id, err = b.Authenticate(ctx, tenant, user, password, remote)
	case askAdmit:
		id, err = b.Admit(tenant, user, remote)
	case askAnonymous:
		id, err = b.Anonymous(tenant, remote)
	case askTenant:
		answer = codec.AppendFlags(appendError(nil, nil), b.HasTenant(tenant))
	case askScram:
		answer, err = s.scrams.begin(ctx, b, from, user, tenant, []byte(password), remote)
	case askScramEnd:
		answer, err = s.scrams.end(ctx, from, user, []byte(password))
	case askCoordinators:
		answer, err = answerCoordinators(ctx, b, from, user, password)
	default:
		return nil, fmt.Errorf("%w: a question of kind %d", errMalformed, what)
	}
	switch {
	case err != nil:
		return appendError(nil, err), nil
	case answer != nil:
		return answer, nil
	}
	return appendIdentity(appendError(nil, nil), id), nil
}
