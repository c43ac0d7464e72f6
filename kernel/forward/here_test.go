package forward

import (
	"context"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/broker"
)

// lines are those that a node has to another one's server.
type lines struct {
	Peers
	answer func(ctx context.Context, from string, req []byte) ([]byte, error)
}

func (l lines) CallLogin(ctx context.Context, raftID string, req []byte) ([]byte, error) {
	return l.answer(ctx, raftID, req)
}

// TestHere: a node says whether its clients are back for the leadership that it is asked
// about; one of an earlier version, that does not know the question, is not waited for.
func TestHere(t *testing.T) {
	server := NewServer(func() *broker.Broker { return nil }, zerolog.Nop())
	defer server.Close()
	now := lines{answer: Greeter{Server: server, Back: func(epoch uint64) bool { return epoch == 1<<40 }}.AnswerLogin}
	for epoch, want := range map[uint64]bool{1 << 40: true, 1: false} {
		if here, err := Here(soon(t), now, "2", epoch); here != want || err != nil {
			t.Errorf("%d: %v, %v", epoch, here, err)
		}
	}
	if here, err := Here(soon(t), lines{answer: server.AnswerLogin}, "2", 1); here || err == nil {
		t.Error(here, err)
	}
	if _, err := now.answer(soon(t), "2", []byte{askHere}); err == nil {
		t.Error("half a question is answered")
	}
}
