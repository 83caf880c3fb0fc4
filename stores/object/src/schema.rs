//! What has to be set up: the least rights, and rules that keep the bucket small.

use super::settings::PREFIX;
use tenure_store::SetupRequest;

/// What `tenure schema` prints.
pub(super) fn setup(request: &SetupRequest<'_>) -> String {
    let SetupRequest { user, namespace, .. } = request;
    format!(
        "# Nothing has to be made but the bucket. Write your own for BUCKET, and your own prefix if the URL has one.\n\
         # The least rights on S3, as a policy of the user or role {user}:\n\
         cat >policy.json <<'END'\n\
         {{\"Version\": \"2012-10-17\", \"Statement\": [\n\
         \x20 {{\"Effect\": \"Allow\", \"Action\": \"s3:ListBucket\", \"Resource\": \"arn:aws:s3:::BUCKET\",\n\
         \x20  \"Condition\": {{\"StringLike\": {{\"s3:prefix\": \"{PREFIX}/*\"}}}}}},\n\
         \x20 {{\"Effect\": \"Allow\", \"Action\": [\"s3:GetObject\", \"s3:PutObject\"], \"Resource\": \"arn:aws:s3:::BUCKET/{PREFIX}/*\"}},\n\
         \x20 {{\"Effect\": \"Allow\", \"Action\": \"s3:DeleteObject\", \"Resource\": \"arn:aws:s3:::BUCKET/{PREFIX}/_examined/*\"}}\n\
         ]}}\n\
         END\n\
         aws iam put-user-policy --user-name {user} --policy-name {user} --policy-document file://policy.json\n\
         # On Google Cloud Storage: roles/storage.objectUser on the bucket. On Azure: Storage Blob Data Contributor on the container.\n\
         \n\
         # A register that was deleted is an empty object, and a bucket with versions keeps what was replaced. These rules remove both:\n\
         cat >lifecycle.json <<'END'\n\
         {{\"Rules\": [\n\
         \x20 {{\"ID\": \"tenure-replaced\", \"Status\": \"Enabled\", \"Filter\": {{\"Prefix\": \"{PREFIX}/\"}},\n\
         \x20  \"NoncurrentVersionExpiration\": {{\"NoncurrentDays\": 1}}}},\n\
         \x20 {{\"ID\": \"tenure-deleted\", \"Status\": \"Enabled\", \"Expiration\": {{\"Days\": 2}},\n\
         \x20  \"Filter\": {{\"And\": {{\"Prefix\": \"{PREFIX}/\", \"ObjectSizeLessThan\": 1}}}}}}\n\
         ]}}\n\
         END\n\
         aws s3api put-bucket-lifecycle-configuration --bucket BUCKET --lifecycle-configuration file://lifecycle.json\n\
         \n\
         # Who leads what (version, token, record):\n\
         # aws s3 ls --recursive s3://BUCKET/{PREFIX}/{namespace}/\n\
         # aws s3 cp s3://BUCKET/{PREFIX}/{namespace}/EPOCH/role/ROLE -\n"
    )
}
