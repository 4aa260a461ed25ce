default-docker:
  use-sigstore-attachments: true
docker:
  r.example.com:5000:
    use-sigstore-attachments: no
    lookaside: https://l.example.com
