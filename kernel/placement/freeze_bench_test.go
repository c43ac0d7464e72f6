package placement

import (
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// BenchmarkFreeze: what publishers wait for at a seal, with 100,000 topics of one
// group each.
func BenchmarkFreeze(b *testing.B) {
	s := newStepped(b)
	for i := range 100_000 {
		id := kernel.TopicID{byte(i * 77), byte(i >> 8), byte(i >> 16), byte(i), 15: byte(i)}
		a := kernel.SessionAddress("/", fmt.Sprintf("session-%d", i/10), kernel.Plain, fmt.Sprintf("home/%d/device/%d", i/10, i%10))
		s.command(b, createPartitionsCommand(id, []PartitionSpec{{Retention: kernel.RetainUsed}}, 1))
		s.command(b, createGroupCommand(GroupSpec{Topic: id, Address: a}, 1))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		s.machine.freeze()
	}
}
