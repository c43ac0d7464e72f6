package placement

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// TestDropEmpty: what came to a topic after it was found empty keeps it.
func TestDropEmpty(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 2, kernel.RetainDay)
		sh := g.machine.share(id)
		var ends []end
		empty := false
		look := func() { sh.topic.shard.call(func() { ends, empty = sh.emptyAt() }) }
		if look(); !empty || len(ends) != 2 {
			t.Fatal(ends, empty)
		}
		publish(t, g, g.Targets(parts[1]), 0, 1)
		for range 2 { // a command may come twice
			_, err := g.do(soon(t), dropEmptyCommand(topicN(1), ends, 9))
			code(t, err, kernel.CodePrecondition)
		}
		code(t, g.DropEmpty(soon(t), topicN(1), id, 9), kernel.CodePrecondition)
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, s)
		m.Credit(1)
		s.wait(t, 1)
		code(t, g.DropEmpty(soon(t), topicN(1), id, 9), kernel.CodePrecondition) // it is held
		m.Settle(kernel.Accept, s.list[0].partition, 0, 0)
		must(t, g.DropEmpty(soon(t), topicN(1), id, 9))
		s.waitEnded(t)
		code(t, g.DropEmpty(soon(t), topicN(1), id, 9), kernel.CodeNotFound)
		_, err := g.do(soon(t), dropEmptyCommand(topicN(1), ends, 9))
		must(t, err)
	})
}
