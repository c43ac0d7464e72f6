package forward

import (
	"context"
	"fmt"

	"github.com/trivium-mq/trivium/metasvc/codec"
)

// askHere is the question whether the clients of a node are back, which the node that
// serves asks as one about logins. Nodes before 0.2 refuse it.
const askHere byte = 16

// Here asks the node of that Raft name whether its clients are back at this one, which
// serves in that epoch (broker.Broker.Epoch). An error says that it is not to be waited
// for: it does not answer, or is of an earlier version.
func Here(ctx context.Context, peers Peers, raftID string, epoch uint64) (bool, error) {
	answer, err := peers.CallLogin(ctx, raftID, codec.AppendUint([]byte{askHere}, epoch))
	if err != nil {
		return false, err
	}
	r := read(answer)
	err = r.error()
	here := err == nil && r.flag()
	return here, either(err, r.Done())
}

// Greeter is a Server that answers Here as well.
type Greeter struct {
	*Server
	// Back reports whether the clients of this node are back at the host that serves in an
	// epoch. Any goroutine.
	Back func(epoch uint64) bool
}

// AnswerLogin implements cluster.ClientServer.
func (g Greeter) AnswerLogin(ctx context.Context, from string, req []byte) ([]byte, error) {
	if len(req) == 0 || req[0] != askHere {
		return g.Server.AnswerLogin(ctx, from, req)
	}
	r := read(req[1:])
	epoch := r.Uint()
	if err := r.Done(); err != nil {
		return nil, fmt.Errorf("%w: a question: %w", errMalformed, err)
	}
	return codec.AppendFlags(appendError(nil, nil), g.Back(epoch)), nil
}
