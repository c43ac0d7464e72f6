package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/kernel/cluster"
)

const (
	caFileName    = "ca.pem"
	caKeyFileName = "ca-key.pem"
	// backdate allows for clocks that differ.
	backdate = time.Hour
)

func (a *app) clusterCerts() *cobra.Command {
	var out string
	var days, caDays int
	var renew bool
	cmd := &cobra.Command{
		Use: "certs --out DIR NODE[=HOST,...]...", Short: "Make the certificates that nodes need beyond the loopback",
		Long: "Make the certificates that nodes need beyond the loopback: an authority, unless the directory has one\n" +
			"(ca.pem, ca-key.pem), and for each node NODE.pem and NODE-key.pem. A certificate says which node\n" +
			"it is; hosts are for those who use it elsewhere, too. No node is asked. Keep ca-key.pem where no\n" +
			"node is: who has it can make nodes.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || out == "" {
				return usage("usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return a.makeCerts(out, args, time.Duration(days)*24*time.Hour, time.Duration(caDays)*24*time.Hour, renew)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`directory` to write to")
	cmd.Flags().IntVar(&days, "days", 825, "how long the nodes' certificates are valid")
	cmd.Flags().IntVar(&caDays, "ca-days", 3650, "how long the authority is, if it is new")
	cmd.Flags().BoolVar(&renew, "renew", false, "replace certificates of nodes, by the authority that the directory has; running nodes read them again")
	return cmd
}

func (a *app) makeCerts(dir string, args []string, life, caLife time.Duration, renew bool) error {
	if life <= 0 || caLife <= 0 {
		return usage("--days and --ca-days are more than 0")
	}
	nodes := map[string][]string{}
	var order []string
	for _, arg := range args {
		node, names, err := hosts(arg)
		if err != nil {
			return err
		}
		if _, twice := nodes[node]; twice {
			return usage("node %s is there twice", node)
		}
		if _, err := os.Stat(filepath.Join(dir, node+".pem")); err == nil && !renew {
			return usage("%s is there already: --renew replaces it", filepath.Join(dir, node+".pem"))
		}
		nodes[node], order = names, append(order, node)
	}
	if _, err := os.Stat(filepath.Join(dir, caFileName)); renew && errors.Is(err, fs.ErrNotExist) {
		return usage("%s is not there: --renew needs the authority that has signed the certificates of the nodes", filepath.Join(dir, caFileName))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	ca, key, err := authority(dir, caLife)
	if err != nil {
		return err
	}
	for _, node := range order {
		if err := issue(dir, node, nodes[node], ca, key, life); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "node %s: --cluster-ca %s --cluster-cert %s --cluster-key %s\n", cell(node),
			filepath.Join(dir, caFileName), filepath.Join(dir, node+".pem"), filepath.Join(dir, node+"-key.pem"))
	}
	return nil
}

// authority reads the one of a directory, or makes one.
func authority(dir string, life time.Duration) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certFile, keyFile := filepath.Join(dir, caFileName), filepath.Join(dir, caKeyFileName)
	raw, err := os.ReadFile(certFile)
	if errors.Is(err, fs.ErrNotExist) {
		return newAuthority(certFile, keyFile, life)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the authority: %w", err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, nil, usage("%s holds no certificate", certFile)
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, UsageError{fmt.Errorf("%s: %w", certFile, err)}
	}
	if raw, err = os.ReadFile(keyFile); err != nil {
		return nil, nil, UsageError{fmt.Errorf("read the key of the authority: %w", err)}
	}
	if block, _ = pem.Decode(raw); block == nil {
		return nil, nil, usage("%s holds no key", keyFile)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok || !key.PublicKey.Equal(ca.PublicKey) {
		return nil, nil, usage("%s is not the key of %s", keyFile, certFile)
	}
	return ca, key, nil
}

func newAuthority(certFile, keyFile string, life time.Duration) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	t := template("trivium cluster", life)
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage, t.ExtKeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign, nil
	t.MaxPathLenZero = true
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the authority: %w", err)
	}
	if err := writeKey(keyFile, key); err != nil {
		return nil, nil, err
	}
	if err := writePEM(certFile, "CERTIFICATE", der, 0o644); err != nil {
		return nil, nil, err
	}
	ca, err := x509.ParseCertificate(der)
	return ca, key, err
}

// issue makes the certificate of a node.
func issue(dir, node string, names []string, ca *x509.Certificate, caKey *ecdsa.PrivateKey, life time.Duration) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	name := cluster.CertificateName(node)
	t := template(name, life)
	if t.NotAfter.After(ca.NotAfter) {
		t.NotAfter = ca.NotAfter
	}
	t.DNSNames = []string{name}
	for _, h := range names {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, ca, &key.PublicKey, caKey)
	if err != nil {
		return fmt.Errorf("make the certificate of node %s: %w", node, err)
	}
	if err := writeKey(filepath.Join(dir, node+"-key.pem"), key); err != nil {
		return err
	}
	return writePEM(filepath.Join(dir, node+".pem"), "CERTIFICATE", der, 0o644)
}

func template(name string, life time.Duration) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // never fails
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-backdate), NotAfter: time.Now().Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(file, "PRIVATE KEY", der, 0o600)
}

// writePEM replaces a file as a whole: a node may be reading it.
func writePEM(file, kind string, der []byte, mode fs.FileMode) error {
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(file+".tmp", data, mode); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}
