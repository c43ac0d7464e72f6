package metasvc

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCatalogHistoriesCatch shows that the histories notice bugs: each is planted, and
// found within some seeds.
func TestCatalogHistoriesCatch(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the test twice more")
	}
	for _, build := range []struct {
		tag    string
		plants []string
	}{
		{"trivium_planted", []string{"earlyAnswer", "unknownIsRefused", "foreignAnswer", "appliedTwice", "staleRestore"}},
		{"trivium_nosync", []string{""}},
	} {
		bin := filepath.Join(t.TempDir(), "metasvc.test")
		if out, err := exec.Command("go", "test", "-c", "-tags", build.tag, "-o", bin, ".").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, plant := range build.plants {
			cmd := exec.Command(bin, "-test.run", "^TestCatalogHistories$")
			cmd.Env = append(os.Environ(), "TRIVIUM_HISTORIES=300", "TRIVIUM_SEED=1", "TRIVIUM_PLANT="+plant)
			out, err := cmd.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL: TestCatalogHistories")) || !bytes.Contains(out, []byte("TRIVIUM_SEED=")) {
				t.Errorf("with %s %s the histories should fail: %v\n%s", build.tag, plant, err, out)
				continue
			}
			t.Logf("%s %s: %s", build.tag, plant, bytes.SplitN(out, []byte("\n"), 3)[1])
		}
	}
}
