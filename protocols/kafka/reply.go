package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// reply is the place of one answer in a connection's order. Its handler fills
// it in, once: with send, sendRaw or silent at any time and from any
// goroutine, or with later, to be run by the writer when its turn comes.
type reply struct {
	correlation int32
	ready       chan struct{} // closed when one of the fields below is set

	resp kmsg.Response // nil: no answer is sent
	raw  []byte        // an answer outside the protocol: the bare SASL exchange
	late func(context.Context, *writer) error
	end  bool // close the connection after this answer
}

func newReply(correlation int32) *reply {
	return &reply{correlation: correlation, ready: make(chan struct{})}
}

// send answers with resp, which the writer encodes.
func (r *reply) send(resp kmsg.Response) {
	r.resp = resp
	close(r.ready)
}

// sendRaw answers with a frame that has no header.
func (r *reply) sendRaw(b []byte) {
	r.raw = b
	close(r.ready)
}

// silent sends no answer; end closes the connection in its place.
func (r *reply) silent(end bool) {
	r.end = end
	close(r.ready)
}

// later lets the writer run fn when all answers before this one are sent.
func (r *reply) later(fn func(context.Context, *writer) error) {
	r.late = fn
	close(r.ready)
}
