package harness

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestNetwork: the switch lets through, cuts one way, holds back and heals. The
// nodes are this test's own binary as an echo server.
func TestNetwork(t *testing.T) {
	if at := os.Getenv("HARNESS_ECHO"); at != "" {
		echo(at)
		return
	}
	n := NewNetwork(t, 2)
	for host := 1; host <= 2; host++ {
		argv := n.Command(host, os.Args[0], "-test.run=^TestNetwork$")
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "HARNESS_ECHO="+n.Host(host)+":7")
		dieWithParent(cmd)
		Must(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	var c net.Conn
	Wait(t, Patience, "the node accepts", func() (ok bool) {
		var err error
		c, err = net.DialTimeout("tcp", n.Host(1)+":7", time.Second)
		return err == nil
	})
	defer c.Close()
	rd := bufio.NewReader(c)
	ask := func(patience time.Duration) error {
		Must(t, c.SetDeadline(time.Now().Add(patience)))
		if _, err := fmt.Fprintln(c, "hello"); err != nil {
			return err
		}
		_, err := rd.ReadString('\n')
		return err
	}
	Must(t, ask(Patience))
	n.Set(1, 0, Link{Delay: 100 * time.Millisecond})
	begin := time.Now()
	Must(t, ask(Patience))
	if took := time.Since(begin); took < 100*time.Millisecond || took > time.Second {
		t.Errorf("an answer that is held for 100 ms came after %v", took)
	}
	n.Set(1, 0, Link{Cut: true}) // what the node sends; it still receives
	if ask(300*time.Millisecond) == nil {
		t.Error("an answer came over a link that is cut")
	}
	if n.Lost() == 0 {
		t.Error("no packet was lost")
	}
	n.Heal()
	Must(t, ask(Patience)) // the answer of before, when TCP sends it again
}

func echo(at string) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			rd := bufio.NewReader(c)
			for {
				line, err := rd.ReadString('\n')
				if err != nil {
					return
				}
				if _, err := fmt.Fprint(c, line); err != nil {
					return
				}
			}
		}()
	}
}
