package placement

import (
	"testing"

	"github.com/trivium-mq/trivium/storage/kv"
)

// TestClusterHistories plays seeded histories of three or five replicas on simulated
// networks, disks and clocks. TRIVIUM_HISTORIES says how many, TRIVIUM_SEED with which to
// begin.
func TestClusterHistories(t *testing.T) {
	keys, err := kv.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	usual := int64(2000)
	if testing.Short() {
		usual = 100
	}
	n, first := setting("TRIVIUM_HISTORIES", usual), setting("TRIVIUM_SEED", 1)
	var all wseen
	for seed := first; seed < first+n; seed++ {
		w, err := runWorld(seed, keys, 0)
		if err != nil {
			t.Fatal(err)
		}
		all.add(&w.seen)
		if seed%50 == 0 { // the same seed does the same, byte for byte
			again, err := runWorld(seed, keys, 1)
			if err != nil || again.trace.Sum64() != w.trace.Sum64() {
				t.Fatalf("seed %d does not replay: %x, then %x (%v)", seed, w.trace.Sum64(), again.trace.Sum64(), err)
			}
		}
	}
	t.Logf("%+v", all)
}

func (s *wseen) add(o *wseen) {
	for _, p := range []struct{ to, from *int }{
		{&s.crashes, &o.crashes}, {&s.powers, &o.powers}, {&s.blackouts, &o.blackouts}, {&s.sleeps, &o.sleeps},
		{&s.restored, &o.restored}, {&s.installs, &o.installs}, {&s.elections, &o.elections}, {&s.truncations, &o.truncations},
		{&s.transfers, &o.transfers}, {&s.unknown, &o.unknown}, {&s.refused, &o.refused}, {&s.confirmed, &o.confirmed},
		{&s.delivered, &o.delivered}, {&s.accepted, &o.accepted}, {&s.late, &o.late}, {&s.again, &o.again}, {&s.buried, &o.buried},
		{&s.pinned, &o.pinned}, {&s.stored, &o.stored}, {&s.rebased, &o.rebased}, {&s.pulled, &o.pulled}, {&s.merges, &o.merges},
		{&s.checkpoints, &o.checkpoints}, {&s.pairs, &o.pairs},
	} {
		*p.to += *p.from
	}
}
