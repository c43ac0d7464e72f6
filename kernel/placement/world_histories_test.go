package placement

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
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
	if n >= 500 && !all.enough(int(n)) {
		t.Errorf("the histories do not go where they should: %+v", all)
	}
}

// enough says whether n histories have met what they are for.
func (s *wseen) enough(n int) bool {
	return s.crashes > 3*n && s.powers > n/10 && s.blackouts > n/3 && s.sleeps > n/2 && s.restored > n && s.installs > n/100 &&
		s.elections > 2*n && s.truncations > n/10 && s.transfers > n/10 && s.unknown > n/200 && s.confirmed > 10*n && s.accepted > 20*n &&
		s.late > n/10 && s.pairs > n/2 && s.again > n && s.buried > n && s.pinned > n/100 && s.stored > n/2 && s.merges > n/10 && s.turns > n/2 && s.moves > n/2
}

func (s *wseen) add(o *wseen) {
	for _, p := range []struct{ to, from *int }{
		{&s.crashes, &o.crashes}, {&s.powers, &o.powers}, {&s.blackouts, &o.blackouts}, {&s.sleeps, &o.sleeps},
		{&s.restored, &o.restored}, {&s.installs, &o.installs}, {&s.elections, &o.elections}, {&s.truncations, &o.truncations},
		{&s.transfers, &o.transfers}, {&s.unknown, &o.unknown}, {&s.refused, &o.refused}, {&s.confirmed, &o.confirmed},
		{&s.delivered, &o.delivered}, {&s.accepted, &o.accepted}, {&s.late, &o.late}, {&s.again, &o.again}, {&s.buried, &o.buried},
		{&s.pinned, &o.pinned}, {&s.stored, &o.stored}, {&s.rebased, &o.rebased}, {&s.pulled, &o.pulled}, {&s.merges, &o.merges},
		{&s.checkpoints, &o.checkpoints}, {&s.pairs, &o.pairs}, {&s.turns, &o.turns}, {&s.moves, &o.moves},
	} {
		*p.to += *p.from
	}
}

// TestClusterHistoriesCatch shows that the histories notice bugs: each is planted, and
// found within some seeds.
func TestClusterHistoriesCatch(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the test twice more")
	}
	for _, build := range []struct {
		tag    string
		plants []string
	}{
		{"trivium_planted", []string{"staleSettlements", "wallClock", "lostLetters", "unknownIsDone", "noLease", "staleTrims", "catalogRead"}},
		{"trivium_nosync", []string{""}},
	} {
		bin := filepath.Join(t.TempDir(), "placement.test")
		if out, err := exec.Command("go", "test", "-c", "-tags", build.tag, "-o", bin, ".").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, plant := range build.plants {
			cmd := exec.Command(bin, "-test.run", "^TestClusterHistories$")
			cmd.Env = append(os.Environ(), "TRIVIUM_HISTORIES=1000", "TRIVIUM_SEED=1", "TRIVIUM_PLANT="+plant)
			out, err := cmd.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL: TestClusterHistories")) {
				t.Errorf("with %s %s the histories should fail: %v\n%s", build.tag, plant, err, out)
				continue
			}
			t.Logf("%s %s: %s", build.tag, plant, bytes.SplitN(out, []byte("\n"), 3)[1])
		}
	}
}
