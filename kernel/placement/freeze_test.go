package placement

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// TestFrozen: what is encoded later is the state as of the freeze, whatever has
// been applied since, and another machine reads it as the same.
func TestFrozen(t *testing.T) {
	s := newStepped(t)
	age := kernel.Retention{Age: time.Hour}
	for i := range 5 {
		s.command(t, createPartitionsCommand(topicN(byte(i+1)), []PartitionSpec{{Retention: age}, {Index: 1}}, 1))
		for k := range i {
			a := kernel.GroupAddress{Tenant: "t", Group: fmt.Sprint("g", k)}
			s.command(t, createGroupCommand(GroupSpec{Topic: topicN(byte(i + 1)), Address: a, Owner: k%2 == 0}, 1))
		}
	}
	want := s.machine.appendTo(nil)
	f := s.machine.freeze()
	for id := range s.machine.groups {
		s.command(t, setOwnerCommand(id, false))
	}
	s.command(t, createPartitionsCommand(topicN(9), []PartitionSpec{{}}, 1))
	if bytes.Equal(want, s.machine.appendTo(nil)) {
		t.Fatal("nothing has changed")
	}
	for range 2 { // a checkpoint may be tried again
		if !bytes.Equal(want, f.appendTo(nil)) {
			t.Fatal("it is not as of the freeze")
		}
	}
	if room := f.size(); room < len(want) || room > 4*len(want) {
		t.Errorf("%d bytes are expected for %d", room, len(want))
	}
}
