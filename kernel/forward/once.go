package forward

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// keepTime is how long it is remembered what a client's calls have come to when its stream
// has broken.
const keepTime = 2 * time.Minute

// maxResults is of how many calls of a client that is remembered.
const maxResults = 1024

// change calls a method that changes something. If that is a call of a client that may be
// repeated over another link, the host is told so, if it knows of such.
func (l *link) change(ctx context.Context, m method, args func(b []byte) []byte, values func(r *reader)) error {
	c, ok := edge.CallOf(ctx)
	if !ok || !l.repeats {
		return l.call(ctx, m, args, values, nil)
	}
	return l.call(ctx, methodOnce, func(b []byte) []byte {
		b = codec.AppendFlags(codec.AppendUint(codec.AppendUint(b, c.ID), c.Below), c.Again)
		return args(append(b, byte(m)))
	}, values, nil)
}

// results are what the calls of a client's connection have come to, over all its streams,
// until the client is known to have heard.
type results struct {
	mu   sync.Mutex
	list map[uint64]*result // by the id of the call
}

type result struct {
	over   chan struct{} // closed when the rest is there
	values []byte        // as they are sent
	err    error
}

// known reports whether the call has been done, or refused, for certain.
func (r *result) known() bool {
	switch kernel.CodeOf(r.err) {
	case kernel.CodeUnavailable, kernel.CodeUnknown:
		return false
	}
	_, kept := errors.AsType[*kernel.Error](r.err) // else it was given up
	return r.err == nil || kept
}

// begin notes a call, and forgets those that are over. before is what the same call has
// come to, or is about to, if it is made again; nil otherwise.
func (rs *results) begin(call edge.Call) (now, before *result) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for id := range rs.list {
		if id < call.Below {
			delete(rs.list, id)
		}
	}
	if call.Again {
		before = rs.list[call.ID]
	}
	if now = (&result{over: make(chan struct{})}); len(rs.list) < maxResults {
		rs.list[call.ID] = now
	}
	return now, before
}

// once returns what does a call unless it has been done.
func (c *session) once(call edge.Call, do answer) answer {
	return func() (func([]byte) []byte, error) {
		rs := c.server.resultsOf(c)
		if rs == nil {
			return nil, errGone() // the client has another stream, and calls again there
		}
		now, before := rs.begin(call)
		defer close(now.over)
		if before != nil {
			<-before.over // its stream has ended, and with that the call
			now.values, now.err = before.values, before.err
		}
		if before == nil || !before.known() {
			var values func([]byte) []byte
			if values, now.err = do(); now.err == nil && values != nil {
				now.values = values(nil)
			}
		}
		return func(b []byte) []byte { return append(b, now.values...) }, now.err
	}
}

// resultsOf returns the results of the connection whose latest session c is, else nil.
func (s *Server) resultsOf(c *session) *results {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[c.token] != c {
		return nil
	}
	rs := s.results[c.token]
	if rs == nil {
		rs = &results{list: make(map[uint64]*result)}
		s.results[c.token] = rs
	}
	return rs
}

// keepResults keeps the results of a connection for a while if its stream has broken, and
// else not at all. The caller holds mu, and no other session has the token.
func (s *Server) keepResults(token string, broken bool) {
	rs := s.results[token]
	switch {
	case rs == nil:
		return
	case !broken:
		delete(s.results, token)
		return
	}
	time.AfterFunc(keepTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tokens[token] == nil && s.results[token] == rs {
			delete(s.results, token)
		}
	})
}
