package forward

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEdgeHistoriesCatch shows that the histories notice bugs: each is planted, here or in
// packages edge and broker, and found within some seeds. That a history hangs is a finding,
// too: two clients that take a session from each other do so without end.
func TestEdgeHistoriesCatch(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the test once more")
	}
	bin := filepath.Join(t.TempDir(), "forward.test")
	if out, err := exec.Command("go", "test", "-c", "-tags", "trivium_planted", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	finding := regexp.MustCompile(`seed \d+: .*|TRIVIUM_SEED=\d+ hangs`)
	for _, plant := range []string{"lostIsDone", "creditTwice", "unfenced", "lostAcks", "noEpoch"} {
		cmd := exec.Command(bin, "-test.run", "^TestEdgeHistories$")
		cmd.Env = append(os.Environ(), "TRIVIUM_HISTORIES=400", "TRIVIUM_SEED=1", "TRIVIUM_PATIENCE=20", "TRIVIUM_PLANT="+plant)
		out, err := cmd.CombinedOutput()
		found := finding.Find(out)
		if err == nil || found == nil {
			t.Errorf("with %s the histories should fail: %v\n%s", plant, err, out[:min(len(out), 4<<10)])
			continue
		}
		t.Logf("%s: %s", plant, bytes.TrimSpace(found))
	}
}
