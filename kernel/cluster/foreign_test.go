package cluster

import (
	"testing"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// TestSeedThatHasFoundedAnew: the first node of the list has lost its disk and founded
// another cluster when it was alone. The members of the old one start all the same and
// elect a leader; one whose seeds are all of another cluster does not.
func TestSeedThatHasFoundedAnew(t *testing.T) {
	list := three(t)
	first := list[0].address()
	for _, m := range list {
		m.stop()
	}
	anew := newDir("1")
	anew.identity.Cluster, anew.identity.Raft, anew.founder = "another", "1", true
	if _, err := start(t, anew, first); err != nil {
		t.Fatal(err)
	}
	second, err := start(t, list[1].dir, list[1].address(), first, list[2].address())
	if err != nil {
		t.Fatal(err)
	}
	third, err := start(t, list[2].dir, list[2].address(), first, list[1].address())
	if err != nil {
		t.Fatal(err)
	}
	until(t, "one of them leads", func() bool {
		two, _ := second.catalog.Raft().Leader()
		three, _ := third.catalog.Raft().Leader()
		return two || three
	})
	third.stop()
	_, err = start(t, list[2].dir, list[2].address(), first)
	refusedWith(t, err, transport.CodeCluster)
}
