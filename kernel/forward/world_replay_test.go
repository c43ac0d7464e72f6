package forward

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEdgeHistoriesReplay shows that a seed is mostly played again exactly by what
// integration/replay builds: in more than half of other processes the sum of all that happens
// is the same as after other histories, and a planted bug is found again. It logs how often.
// TRIVIUM_REPLAY says in how many processes; without it the test is skipped, as it compiles
// the standard library once more.
func TestEdgeHistoriesReplay(t *testing.T) {
	times := setting(t, "TRIVIUM_REPLAY", 0)
	if times == 0 {
		t.Skip("TRIVIUM_REPLAY is not set")
	}
	bin := filepath.Join(t.TempDir(), "edges.test")
	build := exec.Command("go", "run", "../../integration/replay", "-tags", "trivium_planted", "-o", bin, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	play := func(settings ...string) string {
		cmd := exec.Command(bin, "-test.v", "-test.run", "^TestEdgeHistories$")
		cmd.Env = append(append(os.Environ(), "TRIVIUM_TRACE=sum"), settings...)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	sums := regexp.MustCompile(`seed (\d+): ([0-9a-f]{16} of \d+ events)`)
	want := make(map[string]string)
	for _, m := range sums.FindAllStringSubmatch(play("TRIVIUM_SEED=1", "TRIVIUM_HISTORIES=10"), -1) {
		want[m[1]] = m[2]
	}
	if len(want) != 10 {
		t.Fatalf("%d histories of 10 were played", len(want))
	}
	for seed, sum := range want {
		mostly(t, "seed "+seed, int(times), func() bool {
			m := sums.FindStringSubmatch(play("TRIVIUM_SEED="+seed, "TRIVIUM_HISTORIES=1"))
			return m != nil && m[2] == sum
		})
	}
	replayPlanted(t, int(times), play)
}

// mostly wants something in more than half of all times.
func mostly(t *testing.T, what string, times int, is func() bool) {
	n := 0
	for range times {
		if is() {
			n++
		}
	}
	if t.Logf("%s: the same %d times of %d", what, n, times); 2*n <= times {
		t.Errorf("%s is not played again", what)
	}
}

// replayPlanted plays again what finds a planted bug.
func replayPlanted(t *testing.T, times int, play func(settings ...string) string) {
	command := regexp.MustCompile(`again, nearly always: make replay SEED=(-?\d+) PLANT=(\w+)`)
	finding := regexp.MustCompile(`seed -?\d+: \D.*`)
	for _, plant := range []string{"lostIsDone", "creditTwice", "unfenced", "lostAcks"} {
		out := play("TRIVIUM_SEED=1", "TRIVIUM_HISTORIES=400", "TRIVIUM_PLANT="+plant)
		how := command.FindStringSubmatch(out)
		if how == nil {
			t.Errorf("%s is not found: %s", plant, out[max(0, len(out)-2000):])
			continue
		}
		want := finding.FindString(out)
		mostly(t, plant+", "+want, times, func() bool {
			return finding.FindString(play("TRIVIUM_SEED="+how[1], "TRIVIUM_HISTORIES=1", "TRIVIUM_PLANT="+how[2])) == want
		})
	}
}
